"""Tests that after a restore the future is the same bit for bit."""

import threading

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation

from tests.envs import contract
from trellis.envs.batch import Restorability, leaves
from trellis.envs.errors import NotRestorableError
from trellis.envs.gym.make import make_gym

SERIALIZABLE = ["Hopper-v5", "Ant-v5", "Reacher-v5", "Swimmer-v5"]
IN_MEMORY = [
    *("CartPole-v1", "FrozenLake-v1", "Taxi-v4", "Pendulum-v1", "Acrobot-v1", "Blackjack-v1"),
    *("MountainCarContinuous-v0", "CliffWalking-v1"),
]
# Short episodes, so that environments that never terminate have ends too.
LIMIT = 9


class Walk(gymnasium.Env):
    """A random walk with get_state and set_state."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self):
        self.lock = threading.Lock()  # cannot be deep-copied

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.normal(size=2)
        return self.place.copy(), {}

    def step(self, action):
        self.place = self.place + action + self.np_random.normal(size=2)
        ended = bool(self.np_random.uniform() < 0.1)
        return self.place.copy(), float(self.place.sum()), ended, False, {}

    def get_state(self):
        return {"place": self.place}

    def set_state(self, state):
        self.place = state["place"]


class CountingWalk(Walk):
    """Has `get_state` and `set_state` with another meaning."""

    def __init__(self):
        pass

    def get_state(self):
        return 7

    def set_state(self, state):
        raise NotImplementedError


class ObjectWalk(CountingWalk):
    """Returns a state that is not numeric."""

    def get_state(self):
        return {"place": self.place, "target": None}

    def set_state(self, state):
        self.place = state["place"]


class ForgetfulWalk(Walk):
    def get_state(self):
        return {"place": self.place[:1]}

    def set_state(self, state):
        self.place = np.array([state["place"][0], self.place[1]])


class GlobalWalk(Walk):
    """Samples from the global generator, which is not part of a copy."""

    get_state = set_state = None

    def __init__(self):
        pass

    def step(self, action):
        self.place = self.place + np.random.normal(size=2)
        return self.place.copy(), 0.0, False, False, {}


class LockedWalk(Walk):
    get_state = set_state = None


def stacked_hopper():
    return FrameStackObservation(gymnasium.make("Hopper-v5"), 3)


def sample(batch, rng):
    space = batch.action_space
    if isinstance(space, spaces.Discrete):
        return rng.integers(space.n, size=batch.num_envs)
    return rng.uniform(-1.2, 1.2, (batch.num_envs, *space.shape))


def play(batch, actions):
    """Return the observed bytes of each environment up to its end, and whether it ended."""
    alive = np.ones(batch.num_envs, bool)
    seen = [[] for _ in range(batch.num_envs)]
    for action in actions:
        step = batch.step(action, alive)
        for row in np.flatnonzero(alive):
            arrays = [*leaves(step.observation), *step[1:]]
            seen[row].append(b"".join(np.ascontiguousarray(a[row]).tobytes() for a in arrays))
        alive &= ~(step.terminated | step.truncated)
    return seen, ~alive


def by_id(env_id, **options):
    return lambda num_envs: make_gym(env_id, num_envs, max_episode_steps=LIMIT, **options)


def by_callable(make, **options):
    return lambda num_envs: make_gym(make, num_envs, max_episode_steps=LIMIT, **options)


MAKERS = {
    **{env_id: by_id(env_id) for env_id in SERIALIZABLE + IN_MEMORY},
    "Walk": by_callable(Walk),
}
every_environment = pytest.mark.parametrize("name", MAKERS)


@every_environment
def test_snapshots_replay(name):
    serializable = name in SERIALIZABLE or name == "Walk"
    kind = Restorability.SERIALIZABLE if serializable else Restorability.MEMORY
    assert MAKERS[name](1).restorability is kind
    contract.check_replay(MAKERS[name], pairs=24, num_envs=8)


@every_environment
def test_the_last_step_replays(name):
    contract.check_replay_of_ends(MAKERS[name], pairs=16, num_envs=8)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@every_environment
def test_ten_thousand_snapshots_replay(name):
    contract.check_replay(MAKERS[name], pairs=10_000)
    contract.check_replay_of_ends(MAKERS[name], pairs=10_000)


# Blackjack leaves its observation space after the end of an episode, which this check reaches.
@pytest.mark.parametrize("name", [name for name in MAKERS if name != "Blackjack-v1"])
def test_returned_arrays_are_never_written_to_again(name):
    contract.check_handed_out(MAKERS[name])


@pytest.mark.parametrize("name", [*SERIALIZABLE, "Walk"])
def test_environments_are_independent(name):
    contract.check_mask(MAKERS[name])
    contract.check_seeds(MAKERS[name])


def test_wrapped_mujoco_replays_by_copies():
    make = by_callable(stacked_hopper)
    assert make(1).restorability is Restorability.MEMORY
    contract.check_replay(make, pairs=4, num_envs=4)
    contract.check_replay_of_ends(make, pairs=2, num_envs=2)


@pytest.mark.parametrize("env_id", ["Hopper-v5", "Pendulum-v1"])
def test_snapshots_replay_across_processes(env_id):
    contract.check_replay(by_id(env_id, workers=2), pairs=16, num_envs=4)


@pytest.mark.parametrize("make", ["Hopper-v5", Walk])
def test_serializable_snapshots_are_plain_arrays_for_another_batch(make):
    batch = make_gym(make, 2, max_episode_steps=50)
    batch.reset(np.arange(2), np.array([3, 4]))
    rng = np.random.default_rng(0)
    for _ in range(5):
        batch.step(sample(batch, rng))
    snapshot = batch.snapshot(np.arange(2))
    assert all(values.dtype.kind in "fiu" for values in snapshot.values())
    # Through bytes, like a checkpoint, into environments that were never reset.
    written = {
        name: np.frombuffer(values.tobytes(), values.dtype).reshape(values.shape)
        for name, values in snapshot.items()
    }
    other = make_gym(make, 3, max_episode_steps=50)
    other.restore(np.array([2, 0]), written)
    actions = [sample(batch, rng) for _ in range(6)]
    seen, _ = play(batch, actions)
    moved = [np.stack([action[1], 0 * action[0], action[0]]) for action in actions]
    other.reset(np.array([1]), np.array([0]))
    replayed, _ = play(other, moved)
    assert [replayed[2], replayed[0]] == seen


def test_a_snapshot_can_be_restored_twice():
    batch = make_gym("FrozenLake-v1", 2, max_episode_steps=30)
    batch.reset(np.arange(2), np.array([3, 4]))
    row = batch.snapshot(np.array([1]))
    twice = {name: values[[0, 0]] for name, values in row.items()}
    actions = [np.array([2, 2])] * 12
    batch.restore(np.arange(2), twice)
    first, _ = play(batch, actions)
    assert first[0] == first[1]
    batch.restore(np.arange(2), twice)
    assert play(batch, actions)[0] == first


def test_surfaces_of_pygame_are_shared_by_copies():
    class Surface:
        def __deepcopy__(self, memo):
            raise TypeError("cannot pickle 'pygame.surface.Surface' object")

    Surface.__module__ = "pygame.surface"
    batch = make_gym("CartPole-v1", 1)
    batch.reset(np.array([0]), np.array([0]))
    batch.envs[0].unwrapped.screen = Surface()
    snapshot = batch.snapshot(np.array([0]))
    seen, _ = play(batch, [np.array([1])] * 4)
    batch.restore(np.array([0]), snapshot)
    assert play(batch, [np.array([1])] * 4)[0] == seen


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", Walk])
def test_reseeding_changes_only_the_random_numbers(env_id):
    batch = make_gym(env_id, 2)
    batch.reset(np.arange(2), np.array([3, 3]))
    snapshot = batch.snapshot(np.arange(2))
    actions = [sample(batch, np.random.default_rng(0))] * 20
    batch.reseed(np.arange(2), np.array([8, 8]))
    same = {k: v for k, v in batch.snapshot(np.arange(2)).items() if k.startswith("obs")}
    for name, values in same.items():
        np.testing.assert_array_equal(values, snapshot[name])
    actions = [np.repeat(action[:1], 2, axis=0) for action in actions]
    seen, _ = play(batch, actions)
    assert seen[0] == seen[1]
    batch.restore(np.arange(2), snapshot)
    assert play(batch, actions)[0] != seen


@pytest.mark.parametrize("make", [CountingWalk, ObjectWalk])
def test_copies_are_used_if_get_state_fails(make):
    batch = make_gym(make, 2)
    assert batch.restorability is Restorability.MEMORY
    batch.reset(np.arange(2), np.arange(2))
    snapshot = batch.snapshot(np.arange(2))
    actions = np.zeros((2, 2), np.float32)
    after = batch.step(actions).observation.copy()
    batch.restore(np.arange(2), snapshot)
    np.testing.assert_array_equal(batch.step(actions).observation, after)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (LockedWalk, "cannot be copied"),
        (GlobalWalk, "continues differently"),
        (ForgetfulWalk, "continues differently"),
    ],
)
def test_the_error_has_the_reason_and_a_remedy(make, reason):
    batch = make_gym(make, 1)
    assert batch.restorability is Restorability.NONE
    batch.reset(np.array([0]), np.array([0]))
    with pytest.raises(NotRestorableError, match=reason) as caught:
        batch.snapshot(np.array([0]))
    assert "get_state() -> dict of arrays" in str(caught.value)
