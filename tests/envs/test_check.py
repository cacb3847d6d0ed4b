"""`check_env` finds what would fail or be limited in training, and says what to do."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import trellis


class Toy(gymnasium.Env):
    """An environment that does one thing wrong, if it is told to."""

    action_space = spaces.Discrete(2)

    def __init__(self, wrong=""):
        self.wrong, self.count = wrong, 0
        space = spaces.Text(5) if wrong == "text" else spaces.Box(-1, 1, (2,), np.float32)
        self.observation_space = space
        if wrong == "bounds":
            self.action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        if wrong == "copies":
            self.generator = (number for number in range(3))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.observation(), {}

    def step(self, action):
        self.count += 1
        reward = np.random.random() if self.wrong == "seeds" else 1.0
        reward = np.nan if self.wrong == "reward" and self.count > 20 else reward
        over = self.count == 7 and self.wrong not in ("endless", "reward")
        return self.observation(), reward, over, False, {}

    def observation(self):
        if self.wrong == "shape":
            return np.zeros(3, np.float32)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


def levels(report):
    return {check.name: check.level for check in report.checks}


def test_a_good_environment_passes_every_check(capsys):
    report = trellis.check_env(Toy)
    assert report
    assert report.warnings == ()
    assert set(levels(report)) == {
        "making it",
        "observation_space",
        "action_space",
        "Gymnasium's checker",
        "seeds",
        "snapshots",
        "time limit",
        "speed",
    }
    printed = capsys.readouterr().out
    assert printed == f"{report}\n"
    assert printed.endswith("Toy can be trained.\n")


@pytest.mark.parametrize(
    ("wrong", "level", "name", "words"),
    [
        ("text", "error", "observation_space", "Text is not supported"),
        ("shape", "error", "stepping it", "shape"),
        ("reward", "error", "stepping it", "reward is not finite"),
        ("seeds", "warning", "seeds", "use self.np_random"),
        ("copies", "warning", "snapshots", "It cannot be copied"),
        ("endless", "warning", "time limit", "add max_episode_steps"),
        ("bounds", "warning", "action bounds", "no finite bounds"),
    ],
)
def test_a_mistake_is_found(wrong, level, name, words, capsys):
    report = trellis.check_env(lambda: Toy(wrong), verbose=False)
    assert capsys.readouterr().out == ""
    found = {check.name: check for check in report.checks}
    assert found[name].level == level
    assert words in found[name].detail
    assert report.ok is (level == "warning")


def test_an_environment_object_stays_open():
    env = gymnasium.make("Pendulum-v1")
    report = trellis.check_env(env, verbose=False)
    assert (report.ok, report.env_id) == (True, "Pendulum-v1")
    env.reset(seed=0)
    env.close()


@pytest.mark.parametrize(
    ("env", "words"),
    [("Hoper-v5", "Did you mean Hopper-v5"), (lambda: 3, "must return a gymnasium.Env, got int")],
)
def test_what_is_no_environment_is_one_line(env, words):
    (check,) = trellis.check_env(env, verbose=False).checks
    assert check.level == "error"
    assert words in check.detail
