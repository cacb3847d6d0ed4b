"""Small environments that behave like those of popular packages, which are too heavy to install."""

import enum
import gc
import importlib.metadata
import logging
import threading
import types
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from trellis.envs import EnvRaisedError, Restorability
from trellis.envs.gym.batch import GymBatch
from trellis.envs.gym.compatibility import make_registered, with_integer_members
from trellis.envs.gym.make import make_gym
from trellis.envs.gym.requirements import conflicts


class Still(gymnasium.Env):
    """Returns samples of its space, for episodes that do not end."""

    observation_space: spaces.Space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def observe(self) -> Any:
        return 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observe(), {}

    def step(self, action) -> Any:
        return self.observe(), 1.0, False, False, {}


class MissionSpace(spaces.Space):
    """A space of texts that is no `spaces.Text`, like MiniGrid's."""

    def __init__(self):
        super().__init__(dtype=str)

    def sample(self, mask=None, probability=None):
        return "go to the red ball"

    def contains(self, x):
        return isinstance(x, str)


class Grid(Still):
    """Like MiniGrid: a picture, a direction and a mission in words."""

    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (2, 2, 3), np.uint8),
            "direction": spaces.Discrete(4),
            "mission": MissionSpace(),
            "inner": spaces.Tuple((spaces.Text(20), spaces.Discrete(3))),
        }
    )

    def observe(self):
        image = np.full((2, 2, 3), 7, np.uint8)
        return {"image": image, "direction": 3, "mission": "go", "inner": ("hello", 2)}


@pytest.mark.parametrize("workers", [0, 1])
def test_texts_are_left_out_with_a_notice(workers, caplog):
    with caplog.at_level(logging.WARNING):
        batch = make_gym(Grid, 2, workers=workers)
    if not workers:
        assert (
            "leaves out the texts observation['inner'][0] and observation['mission']" in caplog.text
        )
    assert isinstance(batch.observation_space, spaces.Dict)
    assert set(batch.observation_space.spaces) == {"image", "direction", "inner"}
    observation = batch.reset(np.arange(2), np.arange(2))
    assert observation["direction"].tolist() == [3, 3]
    assert [part.tolist() for part in observation["inner"]] == [[2, 2]]
    assert (batch.step(np.zeros(2, int)).observation["image"] == 7).all()
    batch.close()


def test_an_observation_that_is_only_text_is_refused():
    class Words(Still):
        observation_space = spaces.Text(10)

    with pytest.raises(ValueError, match="has no fixed shape"):
        make_gym(Words, 1)


SERVERS: set[int] = set()


class Client:
    """Like PyBullet's client: connects under the lowest free number, and closes it when deleted."""

    def __init__(self):
        self.number = next(number for number in range(100) if number not in SERVERS)
        SERVERS.add(self.number)

    def __del__(self, servers=SERVERS):  # Globals are gone at the end of the process.
        servers.discard(self.number)


class Arm(Still):
    """Like panda-gym: its simulator is a server, which copies of the environment share."""

    def __init__(self):
        self.client = Client()

    def reset(self, *, seed=None, options=None):
        if self.client.number not in SERVERS:
            raise RuntimeError("Not connected to physics server.")
        return super().reset(seed=seed)


def test_a_copy_that_closes_the_shared_simulator_leaves_a_working_batch():
    batch = make_gym(Arm, 3)
    assert isinstance(batch, GymBatch)
    assert batch.restorability is Restorability.NONE
    assert "closes the simulator that it shares" in batch.why_not_restorable
    for _ in range(2):
        batch.reset(np.arange(3), np.arange(3))
        batch.step(np.zeros(3, int))
    assert len({vars(env.unwrapped)["client"].number for env in batch.envs}) == 3


class LateArm(Still):
    """Like pybullet_envs_gymnasium: it connects in its first reset, and refers to itself."""

    def __init__(self):
        self.client, self.me = None, self

    def reset(self, *, seed=None, options=None):
        self.client = self.client or Client()
        self._require_server()
        return super().reset(seed=seed)

    def step(self, action):
        self._require_server()
        return super().step(action)

    def _require_server(self):
        if self.client is None or self.client.number not in SERVERS:
            raise RuntimeError("Not connected to physics server.")


def test_copies_of_a_simulator_that_connects_late_are_deleted_at_once():
    batch = make_gym(LateArm, 3)
    assert "closes the simulator that it shares" in batch.why_not_restorable
    batch.reset(np.arange(3), np.arange(3))
    gc.collect()  # Copies that are left over would close the simulators of others now.
    batch.step(np.zeros(3, int))


class Handle:
    """Like PyFlyt's client: a copy that is not finished fails when it is deleted."""

    def __init__(self):
        self.number, self.lock = 0, threading.Lock()  # Locks cannot be copied.

    def __del__(self):
        self.number += 1


class Drone(Still):
    def __init__(self):
        self.handle = Handle()


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_copies_that_are_not_finished_print_nothing(capfd):
    batch = make_gym(Drone, 1)
    gc.collect()
    assert "cannot be copied" in batch.why_not_restorable
    assert "Traceback" not in capfd.readouterr().err


class Objectives(Still):
    """Like mo-gymnasium: a reward for each of two objectives."""

    def step(self, action):
        return 0, np.array([1.0, -1.0], np.float32), False, False, {}


class Declared(Objectives):
    reward_space = spaces.Box(-1.0, 1.0, (2,))


@pytest.mark.parametrize("env", [Objectives, Declared])
def test_several_objectives_are_refused_before_training(env):
    with pytest.raises(ValueError, match=r"reward of shape \(2,\) .*LinearReward\(env, weight"):
        make_gym(env, 1)


def test_an_assertion_without_a_message_shows_its_line():
    class Broken(Still):
        def __init__(self):
            raise AssertionError  # pytest gives a message to `assert`.

    with pytest.raises(
        EnvRaisedError, match=r"without a message at line \d+ of .*`raise AssertionError"
    ):
        make_gym(Broken, 1)


class Member(enum.Enum):
    """Like MuJoCo's enumerations: members convert to integers but do not equal NumPy's."""

    def __int__(self):
        return self.value


JointType = Member("JointType", {"mjJNT_SLIDE": 2, "mjJNT_HINGE": 3})


def test_enumerations_become_integers_where_a_package_needs_them():
    mujoco = types.ModuleType("mujoco")
    vars(mujoco).update(mjtJoint=JointType, mj_step=len)
    assert np.int32(3) not in (JointType.mjJNT_HINGE, JointType.mjJNT_SLIDE)
    view = with_integer_members(mujoco, "mjtJoint")
    assert np.int32(3) in (view.mjtJoint.mjJNT_HINGE, view.mjtJoint.mjJNT_SLIDE)
    assert view.mj_step is len
    assert mujoco.mjtJoint is JointType  # Other users of the module see no change.
    vars(mujoco).update(mjtJoint=view.mjtJoint)
    assert with_integer_members(mujoco, "mjtJoint") is mujoco


def test_a_failure_names_requirements_that_are_not_met(monkeypatch):
    package = __name__.partition(".")[0]
    wanted = ["numpy==1.0", "gymnasium", "absent", "scipy==1.0; extra == 'x'"]
    monkeypatch.setattr(importlib.metadata, "packages_distributions", lambda: {package: ["arms"]})
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: wanted)
    assert conflicts("elsewhere.envs:Env") == ""
    spec = EnvSpec("Arms-v0", entry_point=f"{__name__}:absent")
    with pytest.raises(RuntimeError, match=r"arms requires numpy==1.0, and [\d.]+ is installed"):
        make_registered(spec)
