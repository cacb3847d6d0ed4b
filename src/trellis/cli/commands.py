"""What each command of `trellis` does; `cli.py` calls them.

Options are their parameters, read by tyro. What is heavy (JAX, MuJoCo, matplotlib) is loaded by the
command that needs it. Results go to standard output, words about the work to standard error.
"""

from collections.abc import Callable

from trellis.cli.inventory import doctor, environments, list_presets
from trellis.cli.policies import evaluate, record
from trellis.cli.reproduce import reproduce
from trellis.cli.statistics import compare, plot
from trellis.cli.train import resume, train

__all__ = ["COMMANDS", "train"]

COMMANDS: dict[str, Callable[..., int]] = {
    "train": train,
    "resume": resume,
    "eval": evaluate,
    "record": record,
    "plot": plot,
    "compare": compare,
    "reproduce": reproduce,
    "envs": environments,
    "presets": list_presets,
    "doctor": doctor,
}
