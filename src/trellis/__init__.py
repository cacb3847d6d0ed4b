"""Trust Region Policy Optimization (Schulman et al., 2015) in JAX.

`TRPO` trains an agent, `SavedPolicy` runs a trained one, and the classes that end in `Config` hold
the settings. `Trainer` gives access to single iterations. `check_env` checks an environment, and
`evaluate_policy` plays episodes with any policy. The names in `__all__` are public.

Example:
    >>> from trellis import TRPO
    >>> agent = TRPO("CartPole-v1", seed=0).learn(2_048, progress_bar=False)
    >>> agent.theta.shape
    (4610,)
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trellis.agent import TRPO
    from trellis.agent_seeds import learn_seeds
    from trellis.config import (
        EstimationConfig,
        PolicyConfig,
        SamplingConfig,
        StepConfig,
        TrainConfig,
    )
    from trellis.envs.check import check_env
    from trellis.policies.saved import SavedPolicy
    from trellis.training.policy_evaluation import evaluate_policy
    from trellis.training.trainer import Trainer

__version__ = "0.2.0"
__all__ = [
    "TRPO",
    "EstimationConfig",
    "PolicyConfig",
    "SamplingConfig",
    "SavedPolicy",
    "StepConfig",
    "TrainConfig",
    "Trainer",
    "check_env",
    "evaluate_policy",
    "learn_seeds",
]

# Each name loads its module when it is first used, so that `trellis --help` does not import JAX.
_HOMES = {
    "TRPO": "trellis.agent",
    "StepConfig": "trellis.config",
    "EstimationConfig": "trellis.config",
    "PolicyConfig": "trellis.config",
    "SamplingConfig": "trellis.config",
    "TrainConfig": "trellis.config",
    "SavedPolicy": "trellis.policies.saved",
    "Trainer": "trellis.training.trainer",
    "check_env": "trellis.envs.check",
    "learn_seeds": "trellis.agent_seeds",
    "evaluate_policy": "trellis.training.policy_evaluation",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'trellis' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
