"""Changes settings by name, and explains the names that other libraries give to them.

`changed` applies nested changes to a configuration. `explain` turns an unknown name into a sentence
with the line that works. Names that Trellis itself has in another group, such as `gamma`, are found
in the settings; the table `HABITS` holds the others.
"""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

NOT_HERE = "TRPO does not have it; leave it out"
HABITS: Mapping[str, str] = {
    # The step.
    "target_kl": 'step={"max_kl": 0.01}',
    "delta": 'step={"max_kl": 0.01}',
    "cg_max_steps": 'step={"cg_iterations": 10}',
    "cg_iters": 'step={"cg_iterations": 10}',
    "cg_damping": 'step={"damping": 0.1}',
    "damping_coeff": 'step={"damping": 0.1}',
    "line_search_shrinking_factor": 'step={"backtrack_ratio": 0.8}',
    "backtrack_coeff": 'step={"backtrack_ratio": 0.8}',
    "line_search_max_iter": 'step={"max_backtracks": 15}',
    "backtrack_iters": 'step={"max_backtracks": 15}',
    "sub_sampling_factor": 'step={"fisher_fraction": 0.1}, a fraction instead of a factor',
    "learning_rate": (
        'estimation={"critic_learning_rate": 1e-3} for the critic; step={"max_kl": 0.01} sets the'
        " size of the policy's step"
    ),
    "lr": (
        'estimation={"critic_learning_rate": 1e-3} for the critic; step={"max_kl": 0.01} sets the'
        " size of the policy's step"
    ),
    "ent_coef": 'step={"entropy_bonus": 0.01}',
    # The batch.
    "n_steps": 'sampling={"steps_per_env": 64}',
    "n_envs": 'sampling={"num_envs": 32}',
    "steps_per_epoch": 'sampling={"num_envs": 32, "steps_per_env": 64}',
    "batch_size": (
        'sampling={"num_envs": 32, "steps_per_env": 64}, whose product is the batch of the policy;'
        ' estimation={"critic_minibatch": 128} is for the critic'
    ),
    # Advantages and critic.
    "discount": 'estimation={"gamma": 0.99}',
    "lam": 'estimation={"gae_lambda": 0.95}',
    "n_critic_updates": 'estimation={"critic_epochs": 10}',
    "n_epochs": 'estimation={"critic_epochs": 10}',
    "vf_lr": 'estimation={"critic_learning_rate": 1e-3}',
    "train_v_iters": 'estimation={"critic_epochs": 10}',
    "normalize_advantage": 'estimation={"advantages": "standardize"}',
    "normalize": 'estimation={"normalize_observations": True, "normalize_rewards": True}',
    # The network.
    "policy_kwargs": 'policy={"hidden": (64, 64)} and estimation={"critic_hidden": (64, 64)}',
    "net_arch": 'policy={"hidden": (64, 64)} and estimation={"critic_hidden": (64, 64)}',
    "log_std_init": 'policy={"initial_log_std": 0.0}',
    "activation_fn": "a policy of your own, policy=Policy(…); hidden layers are tanh",
    # The run.
    "verbose": "learn(…, progress_bar=False) to show nothing",
    "tensorboard_log": 'learn(…, log_dir="runs/mine"), which writes TensorBoard events too',
    "total_timesteps": "learn(total_timesteps=…)",
    "env_kwargs": 'env_options={"name": value}',
    "device": "the variable JAX_PLATFORMS (cpu, cuda) of your shell",
    "_init_setup_model": NOT_HERE,
    # What TRPO does without.
    "vf_coef": f"{NOT_HERE}: policy and critic are separate networks",
    "clip_range": f'{NOT_HERE}; step={{"max_kl": 0.01}} bounds the step',
    "max_grad_norm": f'{NOT_HERE}; step={{"max_kl": 0.01}} bounds the step',
    "use_sde": NOT_HERE,
    "sde_sample_freq": NOT_HERE,
    "rollout_buffer_class": NOT_HERE,
    "rollout_buffer_kwargs": NOT_HERE,
    "stats_window_size": NOT_HERE,
}
"""What to write in Trellis for a setting of Stable-Baselines3, Spinning Up or Tianshou."""
POLICY_NAMES = ("MlpPolicy", "CnnPolicy", "MultiInputPolicy", "MlpLstmPolicy")
"""Names of policies in other libraries, which come before the environment there."""
POLICY_ADVICE = (
    'the network follows from the environment. Write TRPO(env), and policy={"hidden": (64, 64)} for'
    " other sizes"
)


def changed(config: Any, changes: Mapping[str, Any]) -> Any:
    """Return settings with changes. A dictionary changes a part of the old value.

    Raises:
        TypeError: There is no such setting; the message says what to write instead.
    """
    known = {field.name for field in dataclasses.fields(config)}
    unknown = sorted(changes.keys() - known)
    if unknown:
        advice = "; ".join(f"{name}: {explain(config, name)}" for name in unknown)
        if len(unknown) == 1:
            advice = explain(config, unknown[0])
        raise TypeError(f"{type(config).__name__} has no setting {', '.join(unknown)}; {advice}")

    def value(name: str, new: Any) -> Any:
        old = getattr(config, name)
        if dataclasses.is_dataclass(old) and not isinstance(new, Mapping | type(old)):
            raise TypeError(
                f"{name} must be a dictionary of settings or a {type(old).__name__}, got {new!r}"
            )
        if not isinstance(new, Mapping):
            # Settings are hashable; people write hidden=[64, 64], too.
            return tuple(new) if isinstance(new, list) and isinstance(old, tuple) else new
        return changed(old, new) if dataclasses.is_dataclass(old) else {**(old or {}), **new}

    return dataclasses.replace(config, **{name: value(name, new) for name, new in changes.items()})


def explain(config: Any, name: str) -> str:
    """Return what to write instead of a setting that `config` does not have, with its reason.

    Args:
        config: Settings that lack the name, with their nested groups.
        name: The unknown name.
    """
    known = [field.name for field in dataclasses.fields(config)]
    for group in known:
        inner = getattr(config, group)
        if not dataclasses.is_dataclass(inner):
            continue
        if name in {field.name for field in dataclasses.fields(inner)}:
            return f"here it is {group}={{{name!r}: {getattr(inner, name)!r}}}".replace("'", '"')
    if name in HABITS:
        advice = HABITS[name]
        return advice if advice.startswith(NOT_HERE) else f"here it is {advice}"
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"it has {', '.join(known)}{hint}"
