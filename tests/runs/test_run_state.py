"""What a trainer cannot restore is an error of the checkpoint, in one line."""

from types import SimpleNamespace

import numpy as np
import pytest

from trellis.checkpoint_format import Checkpoint, CheckpointError, MismatchError
from trellis.envs.errors import EnvRaisedError
from trellis.runs.run_state import restore

RAISED = EnvRaisedError("ValueError: a\nbad state", env_id="x", index=0, step=1, seed=2)


def restore_with(error):
    """Restore a checkpoint with a trainer that raises this error."""

    def from_checkpoint(arrays, values):
        raise error

    trainer = SimpleNamespace(from_checkpoint=from_checkpoint, config=SimpleNamespace(env="Env-v0"))
    restore(trainer, Checkpoint({"theta": np.zeros(1)}, {}, 7, {}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KeyError("theta"), "KeyError: 'theta'"),
        (ValueError(""), "ValueError:"),
        (FloatingPointError("overflow"), "FloatingPointError: overflow"),
        (RAISED, "bad state"),
    ],
)
def test_an_error_names_the_checkpoint_and_the_environment(error, reason):
    with pytest.raises(CheckpointError) as caught:
        restore_with(error)
    expected = "the checkpoint of iteration 7 cannot be restored in Env-v0: "
    assert str(caught.value) == expected + reason
    assert caught.value.__cause__ is error


def test_other_errors_stay_as_they_are():
    for error in (MismatchError("another shape"), MemoryError(), RuntimeError("a bug")):
        with pytest.raises(type(error)) as caught:
            restore_with(error)
        assert caught.value is error
