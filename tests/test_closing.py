"""Environments are closed within a time limit, in the thread that asks for it."""

import threading
import time

import pytest

from trellis import closing
from trellis.closing import CloseTimeout, close_within


def test_what_closes_is_closed_here():
    threads = []
    assert close_within(lambda: threads.append(threading.current_thread()), 5.0, "x")
    assert threads == [threading.main_thread()]


def test_what_raises_raises():
    def close():
        raise PermissionError("the window stays")

    with pytest.raises(PermissionError, match="the window stays"):
        close_within(close, 5.0, "x")


@pytest.mark.parametrize("wait", [time.sleep, threading.Event().wait], ids=["sleep", "lock"])
def test_what_hangs_is_interrupted(wait):
    started = time.monotonic()
    assert not close_within(lambda: wait(60), 0.05, "x")
    assert time.monotonic() - started < 30
    time.sleep(0.01)  # No signal is late.


def test_what_cannot_be_interrupted_is_told(monkeypatch):
    told = threading.Event()
    names = []

    def on_hang(name):
        names.append(name)
        told.set()

    def close():
        while not told.is_set():
            try:
                told.wait(60)
            except CloseTimeout:
                continue

    monkeypatch.setattr(closing, "on_hang", on_hang)
    monkeypatch.setattr(closing, "AGAIN_SECONDS", 0.02)
    close_within(close, 0.02, "Stubborn-v0")
    assert names == ["Stubborn-v0"]


def test_other_threads_have_no_limit():
    answers = []
    thread = threading.Thread(
        target=lambda: answers.append(close_within(lambda: time.sleep(0.05), 0.0, "x"))
    )
    thread.start()
    thread.join()
    assert answers == [True]
