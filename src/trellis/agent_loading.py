"""Reads a saved agent for `TRPO.load`, which may give it another environment of the same spaces."""

import dataclasses
import warnings
from pathlib import Path
from typing import NamedTuple

from trellis.agent_inputs import CALLABLE_PREFIX, EnvSource, env_name
from trellis.checkpoint_format import Checkpoint, Header
from trellis.config import TrainConfig
from trellis.envs.sources import require_source
from trellis.policies.policy import Policy
from trellis.policies.saved import SavedPolicy
from trellis.policies.saved_agent import read_agent
from trellis.training.checkpoint_arrays import check_header, require_state


class LoadedAgent(NamedTuple):
    """What the folder of an agent holds."""

    config: TrainConfig
    """Settings, with the environment that the agent has now."""
    checkpoint: Checkpoint
    """Arrays and values, without the snapshots of an environment that was replaced."""
    acting: SavedPolicy
    """Policy of the agent."""
    env_replaced: bool
    """Whether the environment is another one than the folder names."""


def read_agent_for(
    path: str | Path, env: EnvSource | None, policy: Policy | None, *, best: bool
) -> LoadedAgent:
    """Read and check an agent; the arguments are those of `TRPO.load`."""

    def check(config: TrainConfig, header: Header) -> None:
        if env is None and config.env.startswith(CALLABLE_PREFIX):
            raise ValueError(f"{path} was trained on {config.env}: pass it as load(path, env=…)")
        check_header(config, header, policy)

    if env is not None:
        require_source(env, "TRPO.load(path, {})")
    config, saved = read_agent(path, check)
    if best:
        saved = _with_best_policy(saved, path)
    name = config.env if env is None else env_name(env)
    acting = SavedPolicy.from_checkpoint(saved, config, policy=policy)
    require_state(saved.arrays, saved.values, config, acting.policy, acting.spaces)
    if name == config.env:
        return LoadedAgent(config, saved, acting, False)
    # The snapshots of its environments mean nothing to another one.
    config = dataclasses.replace(config, env=name)
    acting = dataclasses.replace(acting, config=config)
    arrays = {k: v for k, v in saved.arrays.items() if not k.startswith(("env/", "path/"))}
    return LoadedAgent(config, saved._replace(arrays=arrays), acting, True)


def _with_best_policy(saved: Checkpoint, path: str | Path) -> Checkpoint:
    """Return a checkpoint whose policy is the one with the best evaluation."""
    arrays = dict(saved.arrays)
    if "best_theta" not in arrays:
        warnings.warn(f"{path} has no evaluation yet; using its last policy", stacklevel=4)
        return saved
    arrays["theta"] = arrays["best_theta"]
    for part in ("count", "mean", "squares"):
        arrays[f"observation_moments/{part}"] = arrays[f"best_moments/{part}"]
    return saved._replace(arrays=arrays)
