"""The paper's settings by name, `paper/…`: Table 2's tasks, Table 3's games, and our vines with a
critic at the same budgets."""

import dataclasses

from trellis.config import (
    EstimationConfig,
    PolicyConfig,
    SamplingConfig,
    StepConfig,
    VineConfig,
)
from trellis.presets.preset import Preset

# Table 2 of the paper.
PAPER_MAX_KL = 0.01
PAPER_GAMMA = 0.99
PAPER_ITERATIONS = 200
PAPER_PATH_LENGTH = 1000
PAPER_STEPS_PER_ITERATION = {"swimmer": 50_000, "hopper": 1_000_000, "walker": 1_000_000}
CARTPOLE_STEPS_PER_ITERATION = 10_000
"""Table 2 has no column for the cart-pole; this is ours."""

PAPER_TRUNKS = 16
PAPER_TRUNK_LENGTH = 1000
PAPER_ACTIONS = 4
"""Rollouts per state."""
PAPER_ROLLOUT_LENGTH = {"swimmer": 50, "hopper": 100, "walker": 100}
PAPER_Q_VALUES = {"swimmer": 500, "hopper": 2500, "walker": 2500}
"""(state, action) pairs per batch: N = 125 or 625 states of 4 actions."""
SHORT_ROLLOUT_LENGTH = 10
SHORT_STATES_PER_TRUNK = 600
SHORT_STEPS_PER_TRUNK = (
    PAPER_TRUNK_LENGTH + SHORT_STATES_PER_TRUNK * PAPER_ACTIONS * SHORT_ROLLOUT_LENGTH
)
"""Ours, for rollouts that a critic takes over from: a whole number of trunks makes Table 2's steps.
"""
CARTPOLE_ROLLOUT_LENGTH = 100
CARTPOLE_Q_VALUES = 500
"""Ours, as above."""

PAPER_DAMPING = 1e-3
"""The paper names none; enough to keep the solve from following noise."""
PAPER_ESTIMATION = EstimationConfig(
    gamma=PAPER_GAMMA,
    critic="none",
    advantages="center",
    normalize_observations=False,
    normalize_rewards=False,
)


def _paper(
    task: str,
    steps: int,
    rollout_length: int,
    q_values: int,
    policy: PolicyConfig,
    estimation: EstimationConfig = PAPER_ESTIMATION,
) -> tuple[Preset, Preset]:
    """A task of the paper by single path, and by vine."""
    paths = steps // PAPER_PATH_LENGTH
    single_path = SamplingConfig(
        paths,
        PAPER_PATH_LENGTH,
        whole_paths=True,
        vine=VineConfig(
            trunks=PAPER_TRUNKS,
            trunk_length=PAPER_TRUNK_LENGTH,
            states=q_values // PAPER_ACTIONS,
            actions=PAPER_ACTIONS,
            rollout_length=rollout_length,
        ),
    )

    def preset(about: str, sampling: SamplingConfig) -> Preset:
        return Preset(
            about=about,
            total_steps=PAPER_ITERATIONS * sampling.most_steps,
            # Vine has fewer steps where rollouts end early, and is not to have more iterations.
            max_iterations=PAPER_ITERATIONS,
            policy=policy,
            sampling=sampling,
            estimation=estimation,
            step=StepConfig(max_kl=PAPER_MAX_KL, damping=PAPER_DAMPING),
        )

    return (
        preset(
            f"the paper's {task}: {paths} paths of {PAPER_PATH_LENGTH} steps, no critic",
            single_path,
        ),
        preset(
            f"the paper's {task} by vine: {q_values:,} rollouts of {rollout_length} steps from"
            f" {PAPER_TRUNKS} trunks, no critic",
            dataclasses.replace(single_path, sampler="vine"),
        ),
    )


BY_TASK = {
    "swimmer": _paper(
        "swimmer",
        PAPER_STEPS_PER_ITERATION["swimmer"],
        PAPER_ROLLOUT_LENGTH["swimmer"],
        PAPER_Q_VALUES["swimmer"],
        PolicyConfig(hidden=(30,), hidden_biases=False),
    ),
    "hopper": _paper(
        "hopper",
        PAPER_STEPS_PER_ITERATION["hopper"],
        PAPER_ROLLOUT_LENGTH["hopper"],
        PAPER_Q_VALUES["hopper"],
        PolicyConfig(hidden=(50, 50)),
    ),
    "walker": _paper(
        "walker",
        PAPER_STEPS_PER_ITERATION["walker"],
        PAPER_ROLLOUT_LENGTH["walker"],
        PAPER_Q_VALUES["walker"],
        PolicyConfig(hidden=(50, 50)),
        # Ours: without it runs stood at falls after 65 steps. Joints turn at up to 100 rad/s, which
        # probably saturates a network that sees them as they are.
        dataclasses.replace(PAPER_ESTIMATION, normalize_observations=True),
    ),
    "cartpole": _paper(
        "cart-pole",
        CARTPOLE_STEPS_PER_ITERATION,
        CARTPOLE_ROLLOUT_LENGTH,
        CARTPOLE_Q_VALUES,
        PolicyConfig(hidden=()),
    ),
}


def _vine_of_states(task: str) -> Preset:
    """The other reading of Table 2: as many states as it has Q-values, of four actions each. It
    makes the 1M steps an iteration of hopper and walker come out, and not the swimmer's 50,000."""
    vine, states = BY_TASK[task][1], PAPER_Q_VALUES[task]
    sampling = dataclasses.replace(
        vine.sampling, vine=dataclasses.replace(vine.sampling.vine, states=states)
    )
    return dataclasses.replace(
        vine,
        about=f"the paper's {task} by vine, with {states:,} states of {PAPER_ACTIONS} rollouts",
        total_steps=PAPER_ITERATIONS * sampling.most_steps,
        sampling=sampling,
    )


def _vine_bootstrap(task: str) -> Preset:
    """By the reading that comes closest to Table 2's steps an iteration, and a critic says what
    follows where a rollout is cut: without, nothing that happens later than its 50 or 100 steps
    counts."""
    vine = BY_TASK["swimmer"][1] if task == "swimmer" else _vine_of_states(task)
    about = (
        f"the paper's {task} by vine of {vine.sampling.vine.states:,} states, and, which the paper"
        " has not, a critic for what follows its rollouts"
    )
    return _with_critic(vine, about)


def _vine_short(task: str) -> Preset:
    """Table 2's steps an iteration in rollouts that a critic takes over from early, which
    leaves steps for more states."""
    trunks = PAPER_STEPS_PER_ITERATION[task] // SHORT_STEPS_PER_TRUNK
    states = SHORT_STATES_PER_TRUNK * trunks
    about = (
        f"the paper's {task} by vine of {states:,} states, with rollouts of {SHORT_ROLLOUT_LENGTH}"
        " steps and, which the paper has not, a critic for what follows them"
    )
    return _with_critic(
        BY_TASK[task][1], about, trunks=trunks, states=states, rollout_length=SHORT_ROLLOUT_LENGTH
    )


def _with_critic(vine: Preset, about: str, **sizes: int) -> Preset:
    sampling = dataclasses.replace(
        vine.sampling, vine=dataclasses.replace(vine.sampling.vine, bootstrap=True, **sizes)
    )
    return dataclasses.replace(
        vine,
        about=about,
        total_steps=PAPER_ITERATIONS * sampling.most_steps,
        sampling=sampling,
        estimation=dataclasses.replace(vine.estimation, critic="mlp"),
    )


PAPER: dict[str, Preset] = {
    **{f"paper/{task}": single_path for task, (single_path, _) in BY_TASK.items()},
    **{f"paper/{task}-vine": vine for task, (_, vine) in BY_TASK.items()},
    **{f"paper/{task}-vine-of-states": _vine_of_states(task) for task in PAPER_Q_VALUES},
    **{f"paper/{task}-vine-bootstrap": _vine_bootstrap(task) for task in PAPER_Q_VALUES},
    **{f"paper/{task}-vine-short": _vine_short(task) for task in PAPER_Q_VALUES},
}

# Table 3 of the paper.
ATARI_ITERATIONS = 500
ATARI_STEPS_PER_ITERATION = {"single-path": 100_000, "vine": 400_000}
ATARI_OPTIONS = {"preprocessing": "paper", "actions": "factored"}
ATARI_PATHS = 32
"""Ours: enough rows for two workers to be busy most of the time."""
ATARI_TRUNKS = 16
ATARI_TRUNK_LENGTH = 2500
ATARI_STATES = 900
"""With 4 rollouts of 100 steps each, and 40,000 steps of trunks, the 400,000 of an iteration. Table
3 has neither a rollout length nor anything about the trunks: those are ours."""


def _paper_atari(about: str, sampling: SamplingConfig) -> Preset:
    steps = ATARI_ITERATIONS * ATARI_STEPS_PER_ITERATION[sampling.sampler]
    return Preset(
        about=about,
        env_options=ATARI_OPTIONS,
        total_steps=steps,
        max_iterations=ATARI_ITERATIONS,
        eval_every=steps // 50,
        eval_drawn=True,
        checkpoint_every=ATARI_STEPS_PER_ITERATION[sampling.sampler],
        policy=PolicyConfig(hidden=(20,)),
        sampling=sampling,
        estimation=PAPER_ESTIMATION,
        step=StepConfig(max_kl=PAPER_MAX_KL, damping=PAPER_DAMPING),
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
        SamplingConfig(
            sampler="vine",
            vine=VineConfig(
                trunks=ATARI_TRUNKS,
                trunk_length=ATARI_TRUNK_LENGTH,
                states=ATARI_STATES,
                actions=PAPER_ACTIONS,
                rollout_length=100,
            ),
        ),
    ),
}
