"""`trellis reproduce EXPERIMENT`: the figures and tables of the paper, one subcommand each.

An experiment is a dataclass whose fields are its options. It writes its data, its figures and the
command that made them. Finished runs are skipped, and interrupted runs resume.
"""

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trellis.cli import options
from trellis.cli.errors import require_writable, say, usage_errors

if TYPE_CHECKING:
    from trellis.reproduce.experiment import Experiment

PROGRAM = "trellis reproduce"


EXPERIMENTS = {
    "theory": ("theory", "Theory", "Algorithm 1 and trust regions on finite MDPs (Sec. 3)."),
    "training": ("training", "Training", "Final returns of the modern presets on Gymnasium tasks."),
    "recipe": ("recipe", "Recipe", "Which changes of the modern presets raise the return."),
    "jax": ("jax_suites", "JaxSuites", "Returns on environments in JAX, beside published scores."),
    "memory": ("memory", "Memory", "What memory is worth on tasks that hide velocities."),
    "masks": ("masks", "Masks", "Action masks against penalties on a game with illegal moves."),
    "seeing": ("seeing", "Seeing", "What a robot gains by seeing: camera, joints, full state."),
    "comparison": ("comparison", "Comparison", "Figure 4: seven methods, four tasks (Sec. 8.1)."),
    "cartpole": ("comparison", "CartPoleComparison", "Figure 4 on the cart-pole (Sec. 8.1)."),
    "locomotion": ("comparison", "Locomotion", "Figure 4 on swimmer, hopper, walker (Sec. 8.1)."),
    "ablations": ("ablations", "Ablations", "TRPO with one part changed at a time (App. C)."),
    "atari": ("atari", "Atari", "Table 1 and Figure 5: seven Atari games (Sec. 8.2)."),
    "vine-variance": ("vine", "VineVariance", "Variance of vine's estimates (Sec. 5.2)."),
    "vine-bias": ("vine", "VineBias", "Bias of vine's gradient by proposal (Sec. 5.2)."),
    "vine-controls": ("controls", "VineControls", "Why vine falls on the hopper (Sec. 8.1)."),
    "vine-picture": ("vine", "VinePicture", "Figure 1: trunks and branches of a vine iteration."),
}
"""Folder, class and description of each experiment."""


def reproduce(args: Sequence[str]) -> int:
    """Reproduce a figure or table of the paper."""
    if not args or args[0] in ("-h", "--help"):
        print(f"usage: {PROGRAM} EXPERIMENT [options]\n")
        print(*options.summaries({name: e[-1] for name, e in EXPERIMENTS.items()}), sep="\n")
        print(f"\n  {PROGRAM} EXPERIMENT --help   Show all options of an experiment.")
        return 0 if args else 2
    name, *rest = args
    folder, kind, _ = options.find_entry(EXPERIMENTS, name, "experiment", PROGRAM)
    module = importlib.import_module(f"trellis.reproduce.{folder}.experiment")
    experiment: Experiment = options.read(getattr(module, kind), f"{PROGRAM} {name}", rest)
    require_writable(experiment.out)
    say(f"Reproducing {name} in {experiment.out}")
    from trellis.reproduce.files import ResultsError

    with usage_errors(ResultsError):
        if experiment.report_only:
            experiment.write_pages()
        else:
            experiment.run(say)
    print(experiment.out)
    return 0
