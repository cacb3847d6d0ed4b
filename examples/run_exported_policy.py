"""Run an exported policy in a Gymnasium loop, without Trellis and without JAX.

First: trellis export RUN --format onnx --out policy.onnx
Then: python run_exported_policy.py policy.onnx
It needs: pip install gymnasium onnxruntime (and the simulator, for example gymnasium[mujoco])
"""

import sys

import gymnasium
import numpy as np
import onnxruntime


def main(path: str, episodes: int = 3) -> float:
    session = onnxruntime.InferenceSession(path)
    env = gymnasium.make(session.get_modelmeta().custom_metadata_map["environment"])
    inputs = {each.name: each for each in session.get_inputs()}
    observation_type = np.uint8 if "uint8" in inputs["observation"].type else np.float32
    returns = []
    for episode in range(episodes):
        observation, _ = env.reset(seed=episode)
        total, over, memory = 0.0, False, {}
        if "carry" in inputs:  # A policy with memory starts with zeros.
            memory = {"carry": np.zeros((1, inputs["carry"].shape[1]), np.float32)}
        while not over:
            batch = np.asarray(observation, observation_type)[None]
            actions, *carry = session.run(None, {"observation": batch, **memory})
            memory = {"carry": carry[0]} if memory else {}
            observation, reward, terminated, truncated, _ = env.step(actions[0])
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
        print(f"episode {episode}: return {total:.1f}")
    return float(np.mean(returns))


if __name__ == "__main__":
    main(sys.argv[1])
