"""What the arrays of a whole checkpoint must be, so that training can continue from them.

The settings imply name, type, shape and range of every array but those of the environments'
snapshot, which are compared with a snapshot of a new environment. A run folder may come from
anywhere: nothing in it is used before it was checked.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from trellis.array_file import ArraySpec
from trellis.checkpoint_format import (
    FLOATS,
    INTEGERS,
    CheckpointError,
    Expected,
    Header,
    MismatchError,
    require_values,
)
from trellis.config import TrainConfig
from trellis.envs.batch import BatchEnv, Snapshot
from trellis.envs.errors import EnvError
from trellis.envs.values import LARGEST
from trellis.estimation.critic import Critic, LinearCritic
from trellis.policies.networks import num_weights
from trellis.policies.policy import Policy
from trellis.policies.saved_layout import (
    expected_moments,
    read_count,
    read_layout,
    read_spaces,
    require_known,
    require_specs,
    specs_of,
)
from trellis.spaces import (
    MaskedFeatures,
    PictureFeatures,
    SeveralFeatures,
    Spaces,
    moments_shape,
    observation_encoder,
)
from trellis.strict_json import shown
from trellis.training.build import build_critic

MOST_STEPS = 2**48
"""Largest number of steps of an episode without a time limit."""


def check_header(config: TrainConfig, header: Header, policy: Policy | None = None) -> None:
    """Raise `MismatchError` if a checkpoint does not fit its settings, before arrays are read.

    No environment is needed, so this comes before one is made. The first checkpoints do not always
    describe their spaces; then the number of environments is checked.
    """
    require_known(header.specs)
    try:
        spaces = read_spaces(header.values, config.env)
    except MismatchError:
        if header.values.get("observation_space") is not None:
            raise
        expected = {"discounted_return": _discounted_return(config)}
        require_specs(header.specs, expected)
        return
    policy = read_layout(header, config, policy, spaces).policy
    _require_layout(header.specs, header.values, config, policy, spaces)


def require_state(
    arrays: Mapping[str, np.ndarray],
    values: Mapping[str, Any],
    config: TrainConfig,
    policy: Policy,
    spaces: Spaces,
) -> None:
    """Raise `MismatchError` if an array or a value of a checkpoint is not what it should be."""
    header = Header(specs_of(arrays), dict(values), None)
    read_layout(header, config, policy, spaces)
    expected = _require_layout(header.specs, values, config, policy, spaces)
    for name, wanted in expected.items():
        require_values(name, arrays[name], wanted)
    for name in ("iteration", "steps", "best_iteration", "best_steps"):
        if name in values or not name.startswith("best"):
            read_count(values, name)
    for name in ("best_return", "best_member_return"):
        value = values.get(name, 0.0)
        if type(value) not in (int, float) or math.isnan(value):
            raise MismatchError(f"{name} of this checkpoint must be a number, got {shown(value)}")


def require_snapshot(env: BatchEnv, snapshot: Snapshot) -> None:
    """Raise `CheckpointError` if a snapshot is not one of this environment.

    The environment is reset to have a snapshot of its own to compare with.
    """
    ids = np.arange(env.num_envs)
    env.reset(ids, np.zeros_like(ids))
    ours = env.snapshot(ids)
    if snapshot.keys() != ours.keys():
        names = ", ".join(sorted(snapshot.keys() ^ ours.keys()))
        raise CheckpointError(
            f"the checkpoint holds another snapshot than {env.env_id} takes: it differs in"
            f" {shown(names, quotes=False)}"
        )
    for name, wanted in ours.items():
        found = snapshot[name]
        if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
            raise CheckpointError(
                f"the array env/{name} of the checkpoint has type {found.dtype} and shape"
                f" {found.shape}; {env.env_id} needs {wanted.dtype} and {wanted.shape}"
            )
        if not _is_possible(name, found, env.max_episode_steps):
            raise CheckpointError(
                f"the array env/{name} of the checkpoint holds values that {env.env_id} never has"
            )
    try:
        env.require_possible(snapshot)
    except (ValueError, EnvError) as error:
        raise CheckpointError(f"the checkpoint does not fit its environment: {error}") from error


def _is_possible(name: str, values: np.ndarray, limit: int | None) -> bool:
    """Return whether states and observations are finite, and counters within their range.

    Other arrays belong to an environment of the user, which may use any value.
    """
    kind = name.partition(".")[0]
    if kind in ("state", "observation") and values.dtype.kind == "f":
        return bool(np.all(np.abs(values) <= LARGEST))
    if kind == "elapsed" and np.any(values > (MOST_STEPS if limit is None else limit)):
        return False
    return kind not in ("elapsed", "seed", "counters") or bool(np.all(values >= -1))


def _require_layout(
    specs: Mapping[str, ArraySpec],
    values: Mapping[str, Any],
    config: TrainConfig,
    policy: Policy,
    spaces: Spaces,
) -> dict[str, Expected]:
    """Return what every array must be, except those of the environments' snapshot."""
    features, _ = observation_encoder(spaces[0], config.policy.pictures)
    statistics, paths = moments_shape(features), config.sampling.paths
    required = {"theta": Expected(FLOATS, (policy.num_params,))}
    required |= expected_moments("observation_moments", statistics)
    required |= expected_moments("return_moments", ())
    required["discounted_return"] = _discounted_return(config)
    groups: list[dict[str, Expected]] = []
    if config.step.is_search:
        required |= _search(config, policy, values)
        groups.append({"best_member": required["theta"]})
        if "best_member_moments/count" in specs:  # The first checkpoints had none.
            groups.append(expected_moments("best_member_moments", statistics))
    else:
        try:
            required |= _critic(build_critic(config, features, policy.carry_size))
        except ValueError as error:
            raise MismatchError(f"the settings describe no critic: {error}") from error
        groups.append(_path(features, paths, policy.carry_size))
    groups.append({"best_theta": required["theta"], **expected_moments("best_moments", statistics)})
    for group in groups:
        if not specs.keys().isdisjoint(group):
            required |= group
    require_specs(specs, required)
    for name, spec in specs.items():
        if name.startswith("env/"):
            if config.step.is_search or spec.shape[:1] != (paths,):
                raise MismatchError(
                    f"the array {name} of this checkpoint has shape {spec.shape}; its settings need"
                    f" {paths} environments"
                )
        elif name not in required:
            raise MismatchError(f"this checkpoint holds {name}, which its settings have no use for")
    return required


def _discounted_return(config: TrainConfig) -> Expected:
    return Expected(FLOATS, (0 if config.step.is_search else config.sampling.paths,))


def _path(features: int, paths: int, carry_size: int) -> dict[str, Expected]:
    mask = features.mask if isinstance(features, MaskedFeatures) else 0
    observation = Expected(FLOATS, (paths, features + mask))
    pictures = {}
    if isinstance(features, PictureFeatures):
        observation = Expected(("uint8",), (paths, *features.shape))
    elif isinstance(features, SeveralFeatures):
        width = sum(part.size for part in features.vectors) + features.mask
        observation = Expected(FLOATS, (paths, width))
        for index, part in enumerate(features.pictures):
            pictures[f"path/picture.{index}"] = Expected(("uint8",), (paths, *part.shape))
    carry = {"path/carry": Expected(FLOATS, (paths, carry_size))} if carry_size else {}
    return {
        **pictures,
        "path/observation": observation,
        "path/age": Expected(INTEGERS, (paths,), 0),
        "path/episode_return": Expected(FLOATS, (paths,)),
        **carry,
    }


def _critic(critic: Critic | None) -> dict[str, Expected]:
    if critic is None:
        return {}
    if isinstance(critic, LinearCritic):
        return {"critic/coefficients": Expected(FLOATS, (2 * critic.features + 4,))}
    weights = (num_weights(critic.network),)
    return {
        "critic/weights": Expected(FLOATS, weights),
        "critic/adam_mu": Expected(FLOATS, weights),
        "critic/adam_nu": Expected(FLOATS, weights, 0.0),
        "critic/adam_count": Expected(INTEGERS, (), 0),
    }


def _search(config: TrainConfig, policy: Policy, values: Mapping[str, Any]) -> dict[str, Expected]:
    generations = read_count(values, "iteration")
    if config.step.method == "cma":
        return {"search/fitness": Expected(FLOATS, (generations, None))}
    noisy = config.search.noisy_actions
    searched = policy.num_params if noisy else num_weights(policy.network)
    return {
        "search/mean": Expected(FLOATS, (searched,)),
        "search/std": Expected(FLOATS, (searched,), 0.0),
        "search/generation": Expected(INTEGERS, (), 0),
    }
