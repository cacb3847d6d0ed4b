"""Settings that work best today, by name: `modern/…`."""

from trellis.config import EstimationConfig, PolicyConfig, SamplingConfig, StepConfig
from trellis.presets.preset import Preset

MODERN_ATARI: dict[str, Preset] = {
    "modern/atari": Preset(
        "critic, GAE and scaled rewards, for Atari games; small pictures, to learn more a minute",
        env_options={"preprocessing": "paper"},
        total_steps=8_000_000,
        eval_every=500_000,
        eval_drawn=True,
        policy=PolicyConfig(hidden=(64,)),
        sampling=SamplingConfig(num_envs=32, steps_per_env=128),
        estimation=EstimationConfig(critic_hidden=(64,), critic_epochs=2, critic_minibatch=256),
        step=StepConfig(max_kl=0.02, cg_tolerance=0.1, fisher_fraction=0.25),
    ),
}

MODERN: dict[str, Preset] = {
    "modern/default": Preset("critic, GAE and normalization, for anything without a preset"),
    "modern/mujoco": Preset(
        "critic, GAE and normalization, for MuJoCo's tasks", step=StepConfig(fisher_fraction=1.0)
    ),
    "modern/hopper": Preset(
        "a longer horizon: at γ = 0.99 one of four seeds stayed below 1,800",
        estimation=EstimationConfig(gamma=0.995, gae_lambda=0.97),
        step=StepConfig(fisher_fraction=1.0),
    ),
    "modern/swimmer": Preset(
        "a long horizon: the swimmer's reward comes late",
        sampling=SamplingConfig(num_envs=16, steps_per_env=1000),
        estimation=EstimationConfig(gamma=0.9999, gae_lambda=0.99),
        step=StepConfig(max_kl=0.02),
    ),
    "modern/half-cheetah": Preset(
        "less noise to begin with: at log std 0 two runs of five stayed below 2,000",
        policy=PolicyConfig(initial_log_std=-1.0),
    ),
    "modern/double-pendulum": Preset(
        "new episodes in every iteration, and small steps: a policy that always balances forgets"
        " how to begin",
        sampling=SamplingConfig(whole_paths=True),
        step=StepConfig(max_kl=0.003, fisher_fraction=1.0),
    ),
    "modern/classic": Preset(
        "short episodes and small networks, for classic control",
        total_steps=100_000,
        sampling=SamplingConfig(num_envs=16, steps_per_env=64),
        step=StepConfig(fisher_fraction=1.0),
    ),
}
