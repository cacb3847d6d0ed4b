"""`trellis reproduce WHAT`: the figures and tables of the paper, one command each."""

import inspect
from pathlib import Path
from typing import Annotated, Literal

import tyro

from trellis.cli.messages import UsageError, asking, say

LOCOMOTION = ("swimmer", "hopper", "walker")
COMPARED = ("cartpole", "locomotion")
OPTIONS_OF = {
    "tasks": ("locomotion",),
    "methods": COMPARED,
    "scale": (*COMPARED, "ablations", "atari"),
    "vine_scale": COMPARED,
    "parallel": (*COMPARED, "training", "ablations", "atari"),
    "parts": ("ablations",),
    **dict.fromkeys(("games", "preset", "steps", "runs", "report_only"), ("atari",)),
}
"""What has an option that not all have."""


def reproduce(
    what: Annotated[
        Literal["theory", "training", "cartpole", "locomotion", "ablations", "atari"],
        tyro.conf.Positional,
    ],
    *,
    out: Path | None = None,
    seeds: int | None = None,
    tasks: tuple[str, ...] = LOCOMOTION,
    methods: tuple[str, ...] = (),
    scale: float = 1.0,
    vine_scale: float | None = None,
    parallel: int = 2,
    parts: tuple[str, ...] = (),
    games: tuple[str, ...] = (),
    preset: str = "modern/atari",
    steps: int | None = None,
    runs: Path | None = None,
    report_only: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Reproduces a figure or table of the paper: its data, its drawing, the command that made it.

    Runs that are finished are not run again, interrupted ones resume.

    Args:
        what: theory: Algorithm 1, conservative policy iteration and trust regions on finite MDPs.
            training: final returns and curves of the modern presets.
            cartpole, locomotion: Figure 4, every method of Section 8.1 with the paper's settings.
            ablations: what the parts of TRPO are worth, on the swimmer.
            atari: Table 1 and Figure 5, seven games from pixels.
        out: Folder for the results; results/WHAT by default, results/comparison for cartpole and
            locomotion, whose claims are about all tasks.
        seeds: How many random problems (theory, 10) or runs of each kind (5; ablations, 3;
            atari, 1).
        tasks: Of locomotion: swimmer, hopper, walker.
        methods: Which ones to compare, all by default: trpo, trpo-vine, natural-gradient,
            empirical-fim, max-kl, cem, cma, policy-gradient, kl-penalty. And, where it is named,
            trpo-vine-of-states, trpo-vine-bootstrap, trpo-vine-short.
        scale: Shrinks the steps of an iteration of comparison, ablations and the paper's presets
            for Atari, never the number of iterations.
        vine_scale: The same for vine alone; as SCALE by default.
        parallel: Runs side by side, with one thread each; 1 gives a single run all cores.
        parts: Of ablations, all by default: no-line-search, cg-iterations, fisher-fraction, max-kl,
            penalty. What is run later is added.
        games: Of atari, all by default: BeamRider, Breakout, Enduro, Pong, Qbert, Seaquest,
            SpaceInvaders.
        preset: Of atari: modern/atari, paper/atari-single-path or paper/atari-vine.
        steps: Of a run of atari, at most; runs that had fewer go on.
        runs: Folder of atari's runs; runs/atari by default.
        report_only: Of atari: trains nothing and reports on the runs that there are, finished or
            not.
    """
    given = locals()
    for name, parameter in inspect.signature(reproduce).parameters.items():
        those = OPTIONS_OF.get(name, (what,))
        if given[name] != parameter.default and what not in those:
            raise UsageError(
                f"--{name.replace('_', '-')} is an option of {', '.join(those)}: {what} has none"
            )
    if seeds is not None and seeds < 1:
        raise UsageError(f"--seeds must be at least 1, got {seeds}")
    if parallel < 1:
        raise UsageError(f"--parallel must be at least 1, got {parallel}")
    folder = out or Path("results") / ("comparison" if what in COMPARED else what)
    say(f"Reproducing {what} in {folder}")
    if what == "theory":
        from trellis.reproduce.theory import experiment as theory

        theory.run(folder, seeds or 10)
    elif what == "training":
        from trellis.reproduce.training import experiment as training

        training.run(folder, seeds or 5, say, parallel=parallel)
    elif what == "ablations":
        from trellis.reproduce.ablations import experiment as ablations

        if not 0 < scale <= 1:
            raise UsageError(f"--scale must be in (0, 1], got {scale}")
        with asking():
            variations = ablations.chosen(parts)
        ablations.run(folder, variations, seeds or 3, scale, parallel, say)
    elif what == "atari":
        from trellis.reproduce.atari import experiment as atari
        from trellis.reproduce.atari import plans as atari_runs

        with asking():
            experiment = atari_runs.Experiment(
                games or tuple(atari_runs.GAMES),
                preset,
                steps,
                scale,
                seeds or 1,
                runs or atari_runs.RUNS,
                parallel,
            )
        atari.run(experiment, folder, say, report_only=report_only)
    else:
        from trellis.reproduce.comparison import experiment as comparison

        with asking():
            asked = comparison.experiment(
                tasks if what == "locomotion" else ["cartpole"],
                methods,
                seeds or 5,
                scale,
                vine_scale,
                parallel,
            )
        comparison.run(asked, folder, say)
    print(folder)
    return 0
