"""The controls as data: vine on the hopper with one thing changed at a time.

The paper's vine, without a critic, finds a fast gait on the hopper and falls after a few hundred
steps. Each control removes one possible cause. If the gait then becomes long, the cause is
supported; if not, it is not the cause alone.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trellis.config import TrainConfig
from trellis.config.changes import changed
from trellis.reproduce.comparison import plans
from trellis.reproduce.comparison.plans import METHODS, TASKS

TASK = TASKS["hopper"]
SEED = 100
"""Seed of all controls, which no reported run uses."""
SHORT = 30
"""Iterations of controls that start from a trained policy."""
Base = Literal["vine", "single-path"]


@dataclass(frozen=True)
class Control:
    """One run with one change."""

    name: str
    """Name of the run."""
    change: str
    """The change in at most 12 words."""
    cause: str
    """Possible cause that the control tests, in at most 12 words; empty for a reference."""
    base: Base = "vine"
    """Preset that is changed."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Changed settings, nested."""
    states: int = 1
    """Factor of the number of branch states."""
    start: str | None = None
    """Control whose last policy this one starts from. Default: a new policy."""
    expects_gait: bool = True
    """Whether the cause is supported by a long gait, or by the loss of it."""

    def config(self, scale: float, single_scale: float, iterations: int) -> TrainConfig:
        """Return the settings of the run.

        Args:
            scale: Size of vine's iterations relative to the paper's.
            single_scale: Size of single path's iterations relative to the paper's.
            iterations: Iterations of runs that start from a new policy.
        """
        is_vine = self.base == "vine"
        method = METHODS["trpo-vine" if is_vine else "trpo"]
        config = plans.settings(TASK, method, scale if is_vine else single_scale)
        vine = config.sampling.vine
        vine = dataclasses.replace(vine, states=self.states * vine.states)
        sampling = dataclasses.replace(config.sampling, vine=vine)
        config = changed(dataclasses.replace(config, sampling=sampling), self.settings)
        count = iterations if self.start is None else min(SHORT, iterations)
        total = count * config.sampling.most_steps
        return dataclasses.replace(
            config,
            seed=SEED,
            total_steps=total,
            max_iterations=count,
            checkpoint_every=max(1, total // 20),
        )


def _vine(name: str, change: str, cause: str, **settings: Any) -> Control:
    return Control(name, change, cause, settings=settings)


def _task(**options: Any) -> dict[str, Any]:
    return {"env_options": options}


ONE_STEP = {"timestep": 0.02, "frame_skip": 1}
UNIT = "the unit of actions: full torque as the first noise"
NOISE = "the noise of later actions, which hides the first one's effect"
CONTROLS = (
    Control("vine", "none: the paper's vine, no critic", ""),
    Control("single-path", "none: single path", "", base="single-path"),
    Control(
        "a-vine-from-gait",
        f"{SHORT} iterations of vine from single path's last policy",
        "vine's estimates shorten the episodes of a gait",
        start="single-path",
        expects_gait=False,
    ),
    Control(
        "b-single-path-100",
        "single path with Q̂ of 100 rewards",
        "rewards after 100 steps do not count",
        base="single-path",
        settings={"estimation": {"horizon": 100}},
        expects_gait=False,
    ),
    *(
        _vine(
            f"c-log-std{value:g}",
            f"initial log std {value:g}",
            NOISE,
            policy={"initial_log_std": value},
        )
        for value in (-2.0, -3.0, -4.0)
    ),
    _vine("c-torque", "actions in N·m, initial log std 0", UNIT, **_task(action_unit="torque")),
    Control(
        "d-10x-states",
        f"{SHORT} iterations with 10 × the states, from vine's last policy",
        "too few branch states",
        states=10,
        start="vine",
    ),
    _vine(
        *("e-whole-body", "velocity of the whole body", "velocity of the torso: leaning pays"),
        **_task(velocity="whole-body"),
    ),
    _vine("e-one-step", "one physics step of 20 ms", "the integrator", **_task(**ONE_STEP)),
    _vine(
        *("e-clipped", "velocities clipped to ±10 in the observation", "saturated networks"),
        **_task(velocity_limit=10.0),
    ),
    _vine(
        *("e-no-x", "x left out of the observation", "x grows and saturates the network"),
        **_task(exclude_current_positions_from_observation=True),
    ),
    _vine(
        *("e-all", "all four of (e), and actions in N·m", "several of these together"),
        **_task(
            velocity="whole-body",
            velocity_limit=10.0,
            exclude_current_positions_from_observation=True,
            action_unit="torque",
            **ONE_STEP,
        ),
    ),
    _vine("f-max-kl", "δ = 0.002", "steps that are too long", step={"max_kl": 0.002}),
    _vine("f-damping", "damping 0.1", "steps along noise", step={"damping": 0.1}),
    _vine(
        *("g-rollouts-300", "rollouts of 300 steps", "rollouts of 100 steps are too short"),
        sampling={"vine": {"rollout_length": 300}},
    ),
    *(
        _vine(
            name,
            f"a value of {value:g} after a rollout that survives",
            "survival is not rewarded",
            sampling={"vine": {"cut_value": value}},
        )
        # A gait earns about 2.9 per step, so 290 from then on at γ = 0.99.
        for name, value in (("h-constant-tail", 100.0), ("h-constant-tail-300", 300.0))
    ),
)
BY_NAME = {control.name: control for control in CONTROLS}
REFERENCES = ("vine", "single-path")
