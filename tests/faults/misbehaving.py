"""Environments that misbehave, each in its own way: `Misbehaving-v0` with the option `fault`.

Faults strike in the fifth step of an episode that was reset with an odd seed, so that training is
under way. The others are named by where they strike: init, spaces, reset, close, copy, state.
"""

import atexit
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time

import gymnasium
import numpy as np
from gymnasium import spaces

BOX = spaces.Box(-1, 1, (2,), np.float32)


class CustomBaseException(BaseException):
    pass


class UnprintableError(Exception):
    def __str__(self):
        raise ValueError("no text")


def _raise(error):
    raise error


def _recurse(n=0):
    return _recurse(n + 1)


def _fork_and_return():
    os.fork()


def _fork_a_sleeper():
    if os.fork() == 0:
        time.sleep(1000)
        os._exit(0)


def _leave_thread(daemon=False):
    threading.Thread(target=time.sleep, args=(1000,), daemon=daemon, name="forgotten").start()


def _replace_handlers():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)


def _close_descriptors():
    os.closerange(1, 3)


def _seed_everything():
    random.seed(0)
    np.random.seed(0)


def _kill_self():
    os.kill(os.getpid(), signal.SIGKILL)


def _hang_at_exit():
    atexit.register(time.sleep, 1000)


ACTS = {
    "nothing": lambda: None,
    "step raises": lambda: _raise(ZeroDivisionError("the pole has no length")),
    "step raises nothing to read": lambda: _raise(AssertionError()),
    "step raises many lines": lambda: _raise(ValueError("one\ntwo\x1b[31m\r\nthree")),
    "step raises what cannot be printed": lambda: _raise(UnprintableError()),
    "step raises a megabyte": lambda: _raise(ValueError("x" * (1 << 20))),
    "step exits": lambda: sys.exit(0),
    "step interrupts": lambda: _raise(KeyboardInterrupt()),
    "step raises GeneratorExit": lambda: _raise(GeneratorExit()),
    "step raises BaseException": lambda: _raise(CustomBaseException("strange")),
    "step raises MemoryError": lambda: _raise(MemoryError()),
    "step raises StopIteration": lambda: _raise(StopIteration()),
    "step recurses": _recurse,
    "step leaves the process": lambda: os._exit(7),
    "step kills the process": _kill_self,
    "step aborts": os.abort,
    "step forks": _fork_and_return,
    "step forks a sleeper": _fork_a_sleeper,
    "step starts a process": lambda: subprocess.Popen(["sleep", "1000"]),
    "step leaves a thread": _leave_thread,
    "step leaves a daemon": lambda: _leave_thread(daemon=True),
    "step replaces signal handlers": _replace_handlers,
    "step prints megabytes": lambda: print("x" * (4 << 20)),
    "step closes stdout": lambda: (sys.stdout.close(), sys.stderr.close()),
    "step closes descriptors": _close_descriptors,
    "step changes the working directory": lambda: os.chdir("/"),
    "step changes errors of NumPy": lambda: np.seterr(all="raise"),
    "step seeds global generators": _seed_everything,
    "step hangs": lambda: time.sleep(1000),
    "step is slow": lambda: time.sleep(0.05),
    "step hangs at exit": _hang_at_exit,
    "step limits recursion": lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 1),
}
ANSWERS = {
    "reward is NaN": ("reward", np.nan),
    "reward is infinite": ("reward", -np.inf),
    "reward is None": ("reward", None),
    "reward is text": ("reward", "high"),
    "reward is an object": ("reward", object()),
    "reward is an array": ("reward", np.zeros(2)),
    "reward is too large": ("reward", 10**400),
    "reward is complex": ("reward", 1j),
    "observation is NaN": ("observation", np.array([0, np.nan], np.float32)),
    "observation is None": ("observation", None),
    "observation has another shape": ("observation", np.zeros(3, np.float32)),
    "observation has another dtype": ("observation", np.array(["a", "b"])),
    "observation is an object": ("observation", np.array([object(), 1])),
    "observation is ragged": ("observation", [[1.0], [1.0, 2.0]]),
    "observation leaves its box": ("observation", np.full(2, 7, np.float32)),
    "terminated is None": ("terminated", None),
    "terminated is text": ("terminated", "yes"),
    "truncated is an array": ("truncated", np.zeros(2, bool)),
    "info is None": ("info", None),
}


class Misbehaving(gymnasium.Env):
    """Ten steps an episode; rewards the first action."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = BOX
    action_space = spaces.Discrete(2)

    def __init__(self, fault="nothing", render_mode=None):
        self.fault, self.render_mode = fault, render_mode
        self.time, self.bad, self.episodes = 0, False, 0
        self._state = np.zeros(2, np.float32)
        match fault:
            case "init raises":
                raise OSError("port in use")
            case "init raises nothing to read":
                raise AssertionError
            case "init exits":
                sys.exit(3)
            case "init interrupts":
                raise KeyboardInterrupt
            case "init replaces signal handlers":
                _replace_handlers()
            case "spaces are missing":
                self.observation_space = self.action_space = None
            case "action space is text":
                self.action_space = spaces.Text(5)
            case "observation space is a sequence":
                self.observation_space = spaces.Sequence(BOX)
            case "observation leaves its space":
                self.observation_space = spaces.Discrete(3)
        if fault == "spaces raise":
            self.__class__ = WithoutSpaces

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.bad, self.time = bool(seed % 2), 0
        self.episodes += 1
        self._state[:] = self.np_random.uniform(-1, 1, 2)
        if self.bad and self.episodes > 1:
            match self.fault:
                case "reset raises":
                    raise OSError("no such level")
                case "reset exits":
                    sys.exit(5)
                case "reset returns the observation alone":
                    return self._observation()
                case "reset returns None":
                    return None
                case "reset returns another shape":
                    return np.zeros(5, np.float32), {}
                case "reset returns NaN":
                    return np.full(2, np.nan, np.float32), {}
        return self._observation(), {}

    def _observation(self):
        if isinstance(self.observation_space, spaces.Discrete):
            return 5 if self.bad and self.time == 5 else 1
        if self.fault == "observation is changed later":
            return self._state
        return self._state.copy()

    def step(self, action):
        self.time += 1
        if self.fault == "action is changed" and isinstance(action, np.ndarray):
            action[...] = 1
        self._state[:] = np.clip(self._state + self.np_random.normal(0, 0.1, 2), -1, 1)
        answer = {
            "observation": self._observation(),
            "reward": float(action == 0),
            "terminated": self.time >= 10 and self.fault != "episode never ends",
            "truncated": False,
            "info": {},
        }
        if self.bad and self.time == 5:
            if self.fault in ACTS:
                ACTS[self.fault]()
            elif self.fault in ANSWERS:
                name, value = ANSWERS[self.fault]
                answer[name] = value
            elif self.fault == "step returns four values":
                return tuple(answer.values())[:4]
            elif self.fault == "step returns None":
                return None
            elif self.fault == "spaces change":
                self.observation_space = spaces.Box(-1, 1, (4,), np.float32)
                answer["observation"] = np.zeros(4, np.float32)
        return tuple(answer.values())

    def render(self):
        if self.fault == "render raises":
            raise OSError("no display")
        if self.fault == "render returns None":
            return None
        return np.zeros((64, 64, 3), np.uint8)

    def close(self):
        match self.fault:
            case "close raises":
                raise PermissionError("the window stays")
            case "close exits":
                sys.exit(4)
            case "close hangs":
                time.sleep(1000)
            case "close hangs in spite of all":
                while True:
                    with contextlib.suppress(BaseException):
                        time.sleep(1000)

    def __deepcopy__(self, memo):
        match self.fault:
            case "copy raises":
                raise TypeError("a device")
            case "copy exits":
                sys.exit(6)
            case "copy forgets":
                return Misbehaving(self.fault)
        return _copied(self)


class WithoutSpaces(Misbehaving):
    @property
    def observation_space(self):
        raise RuntimeError("connect first")


class Saved(Misbehaving):
    """Offers its state as arrays."""

    def get_state(self):
        numbers = np.array([self.time, self.bad, self.episodes])
        return {"state": self._state.copy(), "numbers": numbers}

    def set_state(self, state):
        self._state = state["state"].astype(np.float32)
        self.time, self.bad, self.episodes = (int(number) for number in state["numbers"])
        if self.fault == "state lies":
            self._state[:] = 0


def _copied(env):
    bare = object.__new__(type(env))
    vars(bare).update(vars(env))
    bare._state = env._state.copy()
    if env._np_random is not None:
        bits = np.random.PCG64()
        bits.state = env._np_random.bit_generator.state
        bare._np_random = np.random.Generator(bits)
    return bare


gymnasium.register("Misbehaving-v0", f"{__name__}:Misbehaving", max_episode_steps=100)
gymnasium.register("MisbehavingSaved-v0", f"{__name__}:Saved", max_episode_steps=100)
