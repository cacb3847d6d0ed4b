"""Measures training end to end over sb3-contrib's TRPO, and sampling over bare physics.

sb3-contrib gets 2,048 steps per iteration, 64×64 tanh networks and minibatches of 128. With RL
Zoo's settings it has 2 environments, 25 conjugate gradient iterations and 20 critic epochs. With
our recipe it has 10 of each, and 2 or 8 environments; 8 is its best number. RL Zoo's settings with
8 environments and the speed of the simulator alone over sb3-contrib are printed too.
"""

import time

import numpy as np

from benchmarks.environments import bare_loop, mujoco_batch, ratio, take_turns
from benchmarks.figure import Figure
from trellis import envs, presets
from trellis.config import SamplingConfig
from trellis.moments import Moments
from trellis.policies.build import build_policy
from trellis.policies.normalizer import Standardizer
from trellis.sampling.single_path import SinglePath
from trellis.spaces import observation_encoder
from trellis.training.trainer import Trainer


def our_rate(env_id: str = "Hopper-v5", iterations: int = 40, warm_up: int = 3) -> float:
    """Return our steps per second in whole iterations, once compiled."""
    config = presets.resolve(env_id)
    trainer = Trainer(config)
    state = trainer.start()
    for _ in range(warm_up):
        state, _ = trainer.iterate(state)
    start, before = time.perf_counter(), state.steps
    for _ in range(iterations):
        state, _ = trainer.iterate(state)
    return (state.steps - before) / (time.perf_counter() - start)


def their_rate(
    num_envs: int, env_id: str = "Hopper-v5", iterations: int = 8, *, zoo: bool = False
) -> float:
    """Return sb3-contrib's steps per second in whole iterations, with RL Zoo's settings or ours."""
    from sb3_contrib import TRPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    env = VecNormalize(make_vec_env(env_id, n_envs=num_envs, seed=0))
    model = TRPO(
        "MlpPolicy",
        env,
        n_steps=2048 // num_envs,
        batch_size=128,
        n_critic_updates=20 if zoo else 10,
        cg_max_steps=25 if zoo else 10,
        cg_damping=0.1,
        target_kl=0.01,
        learning_rate=1e-3,
        device="cpu",
        seed=0,
    )
    model.learn(2048)
    start, before = time.perf_counter(), model.num_timesteps
    model.learn(2048 * iterations, reset_num_timesteps=False)
    return (model.num_timesteps - before) / (time.perf_counter() - start)


def against_sb3() -> list[Figure]:
    rivals = {
        "RL Zoo settings": {"num_envs": 2, "zoo": True},
        "RL Zoo settings, 8 envs": {"num_envs": 8, "zoo": True},
        "2 envs": {"num_envs": 2},
        "8 envs": {"num_envs": 8},
    }
    bounds = {"RL Zoo settings": 12.0, "2 envs": 8.0, "8 envs": 7.0}
    ours, theirs = [], {name: [] for name in rivals}
    for _ in range(2):
        ours.append(our_rate())
        for name, options in rivals.items():
            theirs[name].append(their_rate(**options))
    rates = {name: float(np.mean(found)) for name, found in theirs.items()}
    print(f"  steps/s: ours {np.round(ours)}")
    for name, found in theirs.items():
        print(f"  steps/s: sb3-contrib, {name}, {np.round(found)}")
    what = "training Hopper-v5 end to end over sb3-contrib, its"
    return [
        *(
            Figure(f"{what} {name}", float(np.mean(ours)) / rate, bounds.get(name), at_least=True)
            for name, rate in rates.items()
        ),
        Figure(
            "bare physics of Hopper-v5, 32 envs, over sb3-contrib's training, its 8 envs",
            float(physics_rate() / rates["8 envs"]),
            None,
            at_least=True,
        ),
    ]


def physics_rate(env_id: str = "Hopper-v5", num_envs: int = 32, steps: int = 200) -> float:
    """Return steps per second of the simulator alone, which no training can exceed."""
    env = envs.make(env_id, num_envs)
    shape = steps, num_envs, *env.action_space.shape  # pyright: ignore
    actions = np.random.default_rng(0).uniform(-1, 1, shape)
    loop = bare_loop(env, actions.astype(np.float32))
    loop()
    start = time.perf_counter()
    loop()
    return num_envs * steps / (time.perf_counter() - start)


def sampling_over_physics(env_id: str, num_envs: int, steps: int, bound: float) -> Figure:
    """Measure sampling with the policy over the same number of bare physics steps."""
    env, bare = envs.make(env_id, num_envs), envs.make(env_id, num_envs)
    features, encode = observation_encoder(env.observation_space)
    config = presets.resolve(env_id)
    policy = build_policy(config.policy, env.observation_space, env.action_space)
    moments = Moments.zeros((features,))
    normalize = Standardizer(moments) if config.estimation.normalize_observations else np.asarray
    sampler = SinglePath(env, policy, encode, SamplingConfig(steps_per_env=steps, whole_paths=True))
    theta = policy.init(np.random.default_rng(0))
    samples, _ = sampler.collect(theta, normalize, None, 0)
    physics = bare_loop(bare, np.clip(samples.action, -1, 1))  # pyright: ignore
    theirs, ours = take_turns(physics, lambda: sampler.collect(theta, normalize, None, 0))
    name = f"sampling with the policy over bare physics, {env_id}, {num_envs} envs"
    return Figure(name, ratio(theirs, ours), bound, at_least=True)


def iteration_over_physics(env_id: str = "Hopper-v5", rounds: int = 40) -> list[Figure]:
    """Measure sampling and whole iterations of the preset over the same number of bare steps."""
    config = presets.resolve(env_id)
    trainer = Trainer(config)
    state = trainer.start()
    env, sampling, iteration = trainer.team.shards[0].env, [], []  # pyright: ignore
    batch, nstep = mujoco_batch(env), env.options.frame_skip
    ctrl, rng = batch.bind("ctrl"), np.random.default_rng(0)
    shape = config.sampling.steps_per_env, env.num_envs, *env.action_space.shape
    for turn in range(rounds + 3):
        batch.state[:] = env.snapshot(np.arange(env.num_envs))["state"]
        actions = rng.uniform(-1, 1, shape)
        start = time.perf_counter()
        for action in actions:
            ctrl[:] = action
            batch.step(nstep=nstep)
        bare = time.perf_counter() - start
        start = time.perf_counter()
        state, metrics = trainer.iterate(state)
        if turn >= 3:  # the first ones compile
            iteration.append(bare / (time.perf_counter() - start))
            sampling.append(bare / metrics["seconds_sampling"])
    trainer.close()
    name = f"of {env_id}'s preset over bare physics"
    return [
        Figure(f"sampling {name}", float(np.median(sampling)), 0.88, at_least=True),
        Figure(f"iteration {name}", float(np.median(iteration)), 0.70, at_least=True),
    ]


def run() -> list[Figure]:
    return [
        *iteration_over_physics(),
        sampling_over_physics("Hopper-v5", 32, 200, 0.85),
        sampling_over_physics("Hopper-v5", 256, 50, 0.85),
        sampling_over_physics("trellis/PaperHopper-v0", 256, 400, 0.7),
        *against_sb3(),
    ]
