"""TensorBoard events of a run: files of a bounded size, of which the oldest are removed."""

import secrets
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from trellis.runs.tags import scalars
from trellis.safe_files import make_folder

TENSORBOARD = "tensorboard"
"""Folder of a run that holds its event files."""
EVENT_FILE_BYTES = 16 << 20
"""Size of a TensorBoard event file in bytes at which a new one starts."""
EVENT_BYTES = 256 << 20
"""Size of all event files of a run in bytes at which the oldest are removed."""

_FLUSH_SECONDS = 10.0


class Events:
    """A TensorBoard event file, written by this thread.

    The library's own background writer waits for ever once its disk is full, and hides why.
    """

    def __init__(self, run: Path, purge_from: int | None):
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2, summary_pb2

        # Their classes are made at import time, where a type checker does not see them.
        events, summaries = cast(Any, event_pb2), cast(Any, summary_pb2)
        self._event, self._summary = events.Event, summaries.Summary
        make_folder(run, TENSORBOARD)
        self._folder, self._new_file = run / TENSORBOARD, EventsWriter
        self._open()
        self._flushed = time.monotonic()
        if purge_from is not None:
            started = events.SessionLog(status=events.SessionLog.START)
            self._write(step=purge_from, session_log=started)

    def write(self, row: Mapping[str, Any]) -> None:
        """Write all numbers of a row against its steps."""
        values = [self._summary.Value(tag=k, simple_value=v) for k, v in scalars(row).items()]
        self._write(step=int(row.get("steps") or 0), summary=self._summary(value=values))
        if time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self.flush()

    def _open(self) -> None:
        """Start a new event file, and remove the oldest files if all of them are too large."""
        # The library names files by whole seconds. Nobody can have prepared a link of this name.
        suffix = f".{time.time_ns()}.{secrets.token_hex(8)}"
        self._writer = self._new_file(str(self._folder / "events"), suffix)
        self._bytes = total = 0
        for path in sorted(self._folder.glob("events.out.tfevents.*"), reverse=True):
            about = path.lstat()
            total += about.st_size
            if total > EVENT_BYTES - EVENT_FILE_BYTES and stat.S_ISREG(about.st_mode):
                path.unlink()

    def _write(self, **fields: Any) -> None:
        event = self._event(wall_time=time.time(), **fields)
        self._writer.write_event(event)
        self._bytes += event.ByteSize() + 16  # Length and two checksums.
        if self._bytes > EVENT_FILE_BYTES:
            self._writer.close()
            self._open()

    def flush(self) -> None:
        """Write what is buffered to the file."""
        self._writer.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Write what is buffered and close the file."""
        self._writer.close()
