"""Defines the paper's settings as presets `paper/…`: Table 2's tasks and Table 3's games.

Some presets add a critic to vine, at the same budgets.
"""

import dataclasses
from typing import Literal, NamedTuple

from trellis.config import EstimationConfig, PolicyConfig, SamplingConfig, StepConfig, VineConfig
from trellis.presets.preset import Preset

# Table 2 of the paper.
PAPER_MAX_KL = 0.01
PAPER_ITERATIONS = 200
PAPER_PATH_LENGTH = 1000
PAPER_ACTIONS = 4
"""Rollouts per state."""
PAPER_VINE = VineConfig(trunks=16, trunk_length=1000, actions=PAPER_ACTIONS)
PAPER_ESTIMATION = EstimationConfig(
    gamma=0.99,
    critic="none",
    advantages="center",
    normalize_observations=False,
    normalize_rewards=False,
)
# Ours: without it runs stood at falls after 65 steps. Joints turn at up to 100 rad/s, which
# probably saturates a network that sees them as they are.
WALKER_ESTIMATION = dataclasses.replace(PAPER_ESTIMATION, normalize_observations=True)
PAPER_STEP = StepConfig(max_kl=PAPER_MAX_KL, damping=1e-3)
"""The paper names no damping; this is enough to keep the solve from following noise."""

SHORT_ROLLOUT_LENGTH = 10
SHORT_STATES_PER_TRUNK = 600
SHORT_STEPS_PER_TRUNK = (
    PAPER_VINE.trunk_length + SHORT_STATES_PER_TRUNK * PAPER_ACTIONS * SHORT_ROLLOUT_LENGTH
)
"""Ours, for rollouts that a critic takes over from: a whole number of trunks makes Table 2's steps.
"""


class PaperTask(NamedTuple):
    """A column of Table 2."""

    name: str
    """What descriptions call it."""
    steps: int
    """Simulator steps of an iteration."""
    rollout_length: int
    """Time steps of a rollout of the vine."""
    q_values: int
    """(state, action) pairs per batch: N = 125 or 625 states of 4 actions."""
    policy: PolicyConfig
    estimation: EstimationConfig = PAPER_ESTIMATION


TASKS = {
    "swimmer": PaperTask(
        "swimmer", 50_000, 50, 500, PolicyConfig(hidden=(30,), hidden_biases=False)
    ),
    "hopper": PaperTask("hopper", 1_000_000, 100, 2500, PolicyConfig(hidden=(50, 50))),
    "walker": PaperTask(
        "walker", 1_000_000, 100, 2500, PolicyConfig(hidden=(50, 50)), WALKER_ESTIMATION
    ),
    # Ours: Table 2 has no column for the cart-pole.
    "cartpole": PaperTask("cart-pole", 10_000, 100, 500, PolicyConfig(hidden=())),
}


def _preset(
    task: PaperTask, about: str, sampler: Literal["single-path", "vine"], **vine: int | bool
) -> Preset:
    """Return a preset of a task, with changes of the paper's vine."""
    sizes = {"states": task.q_values // PAPER_ACTIONS, "rollout_length": task.rollout_length}
    sampling = SamplingConfig(
        task.steps // PAPER_PATH_LENGTH,
        PAPER_PATH_LENGTH,
        whole_paths=True,
        sampler=sampler,
        vine=dataclasses.replace(PAPER_VINE, **{**sizes, **vine}),
    )
    critic = "mlp" if sampling.vine.bootstrap else "none"
    return Preset(
        about=f"the paper's {task.name}{about}",
        total_steps=PAPER_ITERATIONS * sampling.most_steps,
        # Vine has fewer steps where rollouts end early, and is not to have more iterations.
        max_iterations=PAPER_ITERATIONS,
        policy=task.policy,
        sampling=sampling,
        estimation=dataclasses.replace(task.estimation, critic=critic),
        step=PAPER_STEP,
    )


def _single_path(task: PaperTask) -> Preset:
    paths = task.steps // PAPER_PATH_LENGTH
    about = f": {paths} paths of {PAPER_PATH_LENGTH} steps, no critic"
    return _preset(task, about, "single-path")


def _vine(task: PaperTask) -> Preset:
    about = (
        f" by vine: {task.q_values:,} rollouts of {task.rollout_length} steps from"
        f" {PAPER_VINE.trunks} trunks, no critic"
    )
    return _preset(task, about, "vine")


def _vine_of_states(task: PaperTask) -> Preset:
    """Return the preset for the other reading of Table 2, with one state per Q-value.

    Each state has four actions. This reading gives the 1M steps per iteration of hopper and walker,
    but not the 50,000 of the swimmer.
    """
    about = f" by vine, with {task.q_values:,} states of {PAPER_ACTIONS} rollouts"
    return _preset(task, about, "vine", states=task.q_values)


def _vine_bootstrap(task: PaperTask) -> Preset:
    """Return the preset for vine with a critic that estimates the value after a rollout.

    It uses the reading that is closest to Table 2's steps per iteration. Without a critic, nothing
    that happens after the 50 or 100 steps of a rollout counts.
    """
    states = task.q_values // PAPER_ACTIONS if task.name == "swimmer" else task.q_values
    about = (
        f" by vine of {states:,} states, and, which the paper has not, a critic for what follows"
        " its rollouts"
    )
    return _preset(task, about, "vine", states=states, bootstrap=True)


def _vine_short(task: PaperTask) -> Preset:
    """Return the preset for vine with a critic and short rollouts.

    It has Table 2's steps per iteration. Shorter rollouts leave steps for more states.
    """
    trunks = task.steps // SHORT_STEPS_PER_TRUNK
    states = SHORT_STATES_PER_TRUNK * trunks
    length = SHORT_ROLLOUT_LENGTH
    about = (
        f" by vine of {states:,} states, with rollouts of {length} steps and, which the paper has"
        " not, a critic for what follows them"
    )
    sizes = {"trunks": trunks, "states": states, "rollout_length": length}
    return _preset(task, about, "vine", bootstrap=True, **sizes)


LOCOMOTION = ("swimmer", "hopper", "walker")
PAPER: dict[str, Preset] = {
    **{f"paper/{key}": _single_path(task) for key, task in TASKS.items()},
    **{f"paper/{key}-vine": _vine(task) for key, task in TASKS.items()},
    **{f"paper/{key}-vine-of-states": _vine_of_states(TASKS[key]) for key in LOCOMOTION},
    **{f"paper/{key}-vine-bootstrap": _vine_bootstrap(TASKS[key]) for key in LOCOMOTION},
    **{f"paper/{key}-vine-short": _vine_short(TASKS[key]) for key in LOCOMOTION},
}

# Table 3 of the paper.
ATARI_ITERATIONS = 500
ATARI_STEPS_PER_ITERATION = {"single-path": 100_000, "vine": 400_000}
ATARI_PATHS = 32
"""Ours: enough rows for two workers to be busy most of the time."""
ATARI_VINE = VineConfig(
    trunks=16, trunk_length=2500, states=900, actions=PAPER_ACTIONS, rollout_length=100
)
"""The rollouts and 40,000 steps of trunks make the 400,000 of an iteration. Table 3 has neither a
rollout length nor anything about the trunks: those are ours."""


def _paper_atari(about: str, sampling: SamplingConfig) -> Preset:
    steps = ATARI_STEPS_PER_ITERATION[sampling.sampler]
    return Preset(
        about=about,
        env_options={"preprocessing": "paper", "actions": "factored"},
        total_steps=ATARI_ITERATIONS * steps,
        max_iterations=ATARI_ITERATIONS,
        eval_every=ATARI_ITERATIONS * steps // 50,
        eval_drawn=True,
        checkpoint_every=steps,
        policy=PolicyConfig(hidden=(20,)),
        sampling=sampling,
        estimation=PAPER_ESTIMATION,
        step=PAPER_STEP,
    )


PAPER_ATARI: dict[str, Preset] = {
    "paper/atari-single-path": _paper_atari(
        "the paper's Atari: 100,000 steps an iteration, 33,500 parameters, no critic",
        SamplingConfig(
            ATARI_PATHS, ATARI_STEPS_PER_ITERATION["single-path"] // ATARI_PATHS, whole_paths=True
        ),
    ),
    "paper/atari-vine": _paper_atari(
        "the paper's Atari by vine: 3,600 rollouts of 100 steps from 16 trunks, no critic",
        SamplingConfig(sampler="vine", vine=ATARI_VINE),
    ),
}
