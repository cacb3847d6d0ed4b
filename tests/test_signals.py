"""Signals are kept, delayed or raised, and handlers are as before afterwards."""

import os
import signal

import pytest

from trellis.envs.guard import Guard
from trellis.signals import (
    STOPPING,
    StoppedAtOnce,
    delayed_signals,
    raised_signals,
    stop_signals,
)


@pytest.fixture(autouse=True)
def handlers():
    before = [signal.getsignal(number) for number in STOPPING]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    yield
    assert [signal.getsignal(number) for number in STOPPING] == before
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_is_raised_where_it_arrives(number):
    with pytest.raises(StoppedAtOnce, match=number.name) as caught, raised_signals():
        os.kill(os.getpid(), number)
    assert caught.value.received == number


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_waits_for_the_end_of_a_block(number):
    done = []

    def work():
        os.kill(os.getpid(), number)
        done.append(1)

    with pytest.raises(StoppedAtOnce), raised_signals(), delayed_signals():
        work()
    assert done


def test_a_signal_acts_although_the_block_failed():
    def fail():
        os.kill(os.getpid(), signal.SIGTERM)
        raise OSError

    with pytest.raises(StoppedAtOnce), raised_signals(), delayed_signals():
        fail()


def test_the_first_signal_is_noted_and_the_second_one_raised():
    with stop_signals(quiet=True) as signals:
        assert not signals.check()
        os.kill(os.getpid(), signal.SIGHUP)
        assert signals.check()
        assert signals.received == [signal.SIGHUP]
        with pytest.raises(StoppedAtOnce, match="SIGINT"):
            os.kill(os.getpid(), signal.SIGINT)


def test_the_second_signal_goes_to_the_handler_of_the_caller():
    seen = []
    old = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:
        with stop_signals(quiet=True) as signals:
            os.kill(os.getpid(), signal.SIGTERM)
            assert not seen
            os.kill(os.getpid(), signal.SIGTERM)
        assert seen == [signal.SIGTERM]
        assert signals.received == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, old)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL, lambda *_: None])
def test_handlers_that_an_environment_replaces_are_set_again(handler):
    with stop_signals(quiet=True) as signals:
        with Guard():
            signal.signal(signal.SIGINT, handler)
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.received == [signal.SIGINT]
