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
    observation_type = np.uint8 if "uint8" in session.get_inputs()[0].type else np.float32
    returns = []
    for episode in range(episodes):
        observation, _ = env.reset(seed=episode)
        total, over = 0.0, False
        while not over:
            batch = np.asarray(observation, observation_type)[None]
            (actions,) = session.run(["action"], {"observation": batch})
            observation, reward, terminated, truncated, _ = env.step(actions[0])
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
        print(f"episode {episode}: return {total:.1f}")
    return float(np.mean(returns))


if __name__ == "__main__":
    main(sys.argv[1])
