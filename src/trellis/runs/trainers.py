"""Choose the trainer for a configuration, and where its shards run."""

import functools
from typing import Any

import jax

from trellis.config import TrainConfig
from trellis.policies.policy import Policy
from trellis.search.trainer import SearchTrainer
from trellis.training.base import TrainerBase
from trellis.training.build import MakeEnv
from trellis.training.compiled import CompiledTrainer, why_not_compiled
from trellis.training.team import LocalTeam
from trellis.training.trainer import Trainer


def make_trainer(
    config: TrainConfig,
    make_env: MakeEnv | None = None,
    policy: Policy | None = None,
    *,
    cluster: str | None = None,
    workers: int | None = None,
    devices: int | None = None,
) -> TrainerBase[Any]:
    """Return the trainer for the method of a configuration.

    Args:
        config: Every setting.
        make_env: Function that makes batches of the environment. Default: from the id in the
            settings.
        policy: A policy of your own. Default: the one that the settings describe.
        cluster: "local", "auto" or the address of a Ray cluster. Default: this process.
        workers: Number of Ray workers. Default: one per CPU of the cluster.
        devices: Number of devices (of JAX) for the shards of an environment in JAX, one shard each.
            Default: one device.

    Raises:
        ValueError: The settings do not fit the cluster or the devices.
    """
    search = config.step.is_search
    if cluster is None:
        if workers is not None:
            raise ValueError("workers need a cluster: add --cluster local, or its address")
        if search:
            return SearchTrainer(config, make_env, policy)
        return _local_trainer(config, make_env, policy, devices)
    if devices is not None:
        raise ValueError("--devices and --cluster exclude each other; leave out one")
    from trellis.cluster.team import RayPopulation, RayTeam

    where = {"cluster": cluster, "workers": workers}
    if search:
        make_population = functools.partial(RayPopulation, **where)
        return SearchTrainer(config, make_env, policy, make_population=make_population)
    return Trainer(config, make_env, policy, make_team=functools.partial(RayTeam, **where))


def _local_trainer(
    config: TrainConfig, make_env: MakeEnv | None, policy: Policy | None, devices: int | None
) -> Trainer:
    """Return the trainer of one process, compiled if environment and settings allow it."""
    found = None if devices is None else jax.devices()
    if devices is not None and len(found or ()) < devices:
        raise ValueError(
            f"there are {len(found or ())} devices, not {devices}: use fewer --devices"
        )
    team = LocalTeam(config, make_env, policy)
    try:
        reason = why_not_compiled(team, config, devices)
        if reason and devices is not None:
            raise ValueError(f"iterations cannot run on {devices} devices, because {reason}")
        if reason:
            return Trainer(config, make_env, policy, team=team)
        return CompiledTrainer(config, team, make_env, found and found[:devices])
    except BaseException:
        team.close()
        raise
