"""Tests of Atari batches: Gymnasium's frames, exact snapshots and replaced workers."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest

import trellis.envs
from tests.envs import contract
from trellis.envs.errors import EnvRaisedError, WorkerDiedError
from trellis.envs.workers import Workers

gymnasium = pytest.importorskip("gymnasium")
ale_py = pytest.importorskip("ale_py")
from trellis.envs.atari.actions import FACTORED  # noqa: E402
from trellis.envs.atari.batch import AtariBatch  # noqa: E402
from trellis.envs.atari.game import AtariGame  # noqa: E402
from trellis.envs.atari.server import AtariServer  # noqa: E402

GAMES = ("BeamRider", "Breakout", "Enduro", "Pong", "Qbert", "Seaquest", "SpaceInvaders")
SIX = tuple(game for game in GAMES if game != "Qbert")
LIMIT = 25


def make(game: str, num_envs: int, **options) -> AtariBatch:
    batch = trellis.envs.make(f"ALE/{game}-v5", num_envs, workers=1, **options)
    assert isinstance(batch, AtariBatch)
    return batch


def follow_gymnasium(game: str, steps: int, seeds=(17, 4), max_frames=108_000, **wrapper) -> None:
    """Step two of our environments and two of Gymnasium's with the same actions, and compare."""
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

    gymnasium.register_envs(ale_py)
    options = {
        "end_on_lost_life": wrapper.get("terminal_on_life_loss", False),
        "action_repeat": wrapper.get("frame_skip"),
        "max_frames": max_frames,
    }
    env, rng = make(game, 2, **options), np.random.default_rng(0)
    theirs = []
    for _ in range(2):
        plain = gymnasium.make(
            f"ALE/{game}-v5",
            frameskip=1,
            repeat_action_probability=0.0,
            max_num_frames_per_episode=max_frames,
        )
        theirs.append(FrameStackObservation(AtariPreprocessing(plain, **wrapper), 4))
    first = env.reset(np.arange(2), np.array(seeds))
    for row in range(2):
        assert np.array_equal(first[row], theirs[row].reset(seed=seeds[row])[0])
    assert env.action_space == theirs[0].action_space
    for t in range(steps):
        actions = contract.random_actions(env, rng)
        step = env.step(actions)
        for row in range(2):
            frames, reward, terminated, truncated, info = theirs[row].step(actions[row])
            assert np.array_equal(step.observation[row], frames), (t, row)
            assert step.reward[row] == reward
            assert (step.terminated[row], step.truncated[row]) == (terminated, truncated)
            assert env.info["lives"][row] == info["lives"]
            if terminated or truncated:
                seed = int(rng.integers(1000))
                start = env.reset(np.array([row]), np.array([seed]))[0]
                assert np.array_equal(start, theirs[row].reset(seed=seed)[0])
    env.close()


def test_frames_and_rewards_are_gymnasiums():
    follow_gymnasium("Breakout", 250)


@pytest.mark.slow
def test_the_ends_of_episodes_are_gymnasiums():
    """With the seeds 3 and 9, an episode ends exactly during the screens without action."""
    follow_gymnasium("Boxing", 12, (3, 9), max_frames=25)


@pytest.mark.slow
def test_the_ends_of_episodes_are_gymnasiums_with_every_screen():
    follow_gymnasium("Boxing", 60, max_frames=45, frame_skip=1)


@pytest.mark.slow
@pytest.mark.parametrize("game", GAMES)
def test_frames_and_rewards_are_gymnasiums_for_2000_steps(game):
    follow_gymnasium(game, 2000)
    follow_gymnasium(game, 500, terminal_on_life_loss=True)


@pytest.mark.slow
def test_the_contract_holds():
    maker = partial(make, "Breakout", max_episode_steps=LIMIT, preprocessing="paper")
    contract.check_replay(maker, pairs=8, num_envs=4, horizon=6)
    contract.check_mask(maker, num_envs=4, steps=6)
    contract.check_seeds(maker, num_envs=4, steps=6)
    contract.check_handed_out(maker, num_envs=4)


@pytest.mark.slow
def test_the_contract_holds_with_sticky_actions_and_the_maximum_of_two_screens():
    maker = partial(make, "Pong", max_episode_steps=LIMIT, sticky_actions=0.5, actions="factored")
    contract.check_replay(maker, pairs=3, num_envs=2, horizon=6)


@pytest.mark.slow
def test_the_contract_holds_in_qbert_which_is_replayed():
    maker = partial(make, "Qbert", max_episode_steps=LIMIT, sticky_actions=0.3)
    contract.check_replay(maker, pairs=3, num_envs=2, horizon=6)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("game", SIX)
def test_2000_restored_states_replay_50_steps(game):
    contract.check_replay(partial(make, game), pairs=2000, num_envs=100, horizon=50)
    maker = partial(make, game, preprocessing="paper", actions="factored", max_frames=1000)
    contract.check_replay_of_ends(maker, pairs=100, num_envs=20)


@pytest.mark.slow
@pytest.mark.parametrize("game", SIX)
def test_10000_restores_in_a_row(game):
    env, rng = make(game, 4), np.random.default_rng(0)
    env.reset(np.arange(4), np.arange(4))
    for action in contract.random_actions(env, rng, 60):
        env.step(action)
    snapshot, pids = env.snapshot(np.arange(4)), env.pids
    actions = contract.random_actions(env, rng, 5)
    future = contract.rollout(env, actions)
    for _ in range(2500):
        env.restore(np.arange(4), snapshot)
    for a, b in zip(future, contract.rollout(env, actions), strict=True):
        contract.assert_same_step(a, b, "after 10,000 restores")
    assert env.pids == pids
    env.close()


@pytest.mark.slow
def test_qbert_starts_and_replays_exactly():
    contract.check_replay(partial(make, "Qbert"), pairs=400, num_envs=40, horizon=50)
    env, rng = make("Qbert", 4), np.random.default_rng(0)
    fresh = make("Qbert", 4)
    first = fresh.reset(np.arange(4), np.arange(4))
    actions = contract.random_actions(env, rng, 30)
    future = contract.rollout(fresh, actions)
    for _ in range(50):
        assert contract.same(env.reset(np.arange(4), np.arange(4)), first)
        for a, b in zip(future, contract.rollout(env, actions), strict=True):
            contract.assert_same_step(a, b, "after another reset")
        contract.rollout(env, contract.random_actions(env, rng, int(rng.integers(1, 100))))
    env.close()
    fresh.close()


@pytest.mark.slow
@pytest.mark.parametrize("game", ["Pong", "Qbert"])
def test_killed_workers_are_replaced_and_nothing_is_lost(game, caplog):
    options = {"preprocessing": "paper", "sticky_actions": 0.25}
    env, undisturbed = make(game, 4, **options), make(game, 4, **options)
    rng, ids = np.random.default_rng(0), np.arange(4)
    assert contract.same(env.reset(ids, ids), undisturbed.reset(ids, ids))
    actions = contract.random_actions(env, rng, 24)
    for t, action in enumerate(actions):
        if t in (5, 15, 20):
            os.kill(env.pids[0], signal.SIGKILL)
        if t == 10:  # one environment is restored to the state of another and reseeded
            snapshot = env.snapshot(np.array([2]))
            for batch in (env, undisturbed):
                batch.restore(np.array([1]), snapshot)
                batch.reseed(np.array([1]), np.array([99]))
        if t == 20:
            env.reset(np.array([0]), np.array([7]))
            undisturbed.reset(np.array([0]), np.array([7]))
        contract.assert_same_step(env.step(action), undisturbed.step(action), f"at {t}")
    assert caplog.text.count("A replacement replays") == 3
    os.kill(env.pids[1], signal.SIGKILL)
    ours, theirs = env.snapshot(ids), undisturbed.snapshot(ids)
    assert contract.same(env.restore(ids, theirs), undisturbed.restore(ids, ours))
    actions = contract.random_actions(env, rng, 5)
    futures = contract.rollout(env, actions), contract.rollout(undisturbed, actions)
    for a, b in zip(*futures, strict=True):
        contract.assert_same_step(a, b, "after a snapshot over a death")
    env.close()
    undisturbed.close()


@pytest.fixture(scope="module")
def two_batches():
    """Two equal batches of Pong in lanes, which several tests share: workers start slowly."""
    options = {"preprocessing": "paper", "sticky_actions": 0.25, "max_episode_steps": 9}
    batches = [make("Pong", 5, **options) for _ in range(2)]
    yield batches
    for batch in batches:
        batch.close()


def test_lanes_equal_steps_of_all_environments_and_survive_a_killed_worker(two_batches, caplog):
    env, whole = two_batches
    ids = np.arange(5)
    env.reset(ids, ids)
    whole.reset(ids, ids)
    assert [rows.indices(5)[:2] for rows in env.lanes] == [(0, 2), (2, 5)]
    for t, action in enumerate(contract.random_actions(env, np.random.default_rng(0), 12)):
        for lane, rows in enumerate(env.lanes):
            env.send(lane, action[rows])
        if t == 4:
            os.kill(env.pids[1], signal.SIGKILL)  # while both lanes step
        expected = whole.step(action)
        for lane, rows in enumerate(env.lanes):
            step = env.receive(lane)
            for ours, theirs in zip(step, expected, strict=True):
                assert np.array_equal(ours, theirs[rows]), (t, lane)
            ended = ids[rows][step.truncated]
            assert len(ended) == (len(ids[rows]) if t == 8 else 0)
            if len(ended):  # while the other lane steps or waits
                again = env.reset(ended, ended + 7)
                assert np.array_equal(again, whole.reset(ended, ended + 7))
    assert caplog.text.count("A replacement replays") == 1
    assert np.array_equal(env.elapsed, whole.elapsed)
    assert contract.same(env.snapshot(ids), whole.snapshot(ids))


def test_there_is_a_worker_for_each_core_that_the_process_may_use(monkeypatch):
    """A container may have one core of a machine with many."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    batch = trellis.envs.make("ALE/Pong-v5", 4)
    assert len(batch.pids) == len(batch.lanes) == 2
    batch.close()


def test_an_answer_that_was_not_received_is_not_taken_for_another(two_batches):
    env, undisturbed = two_batches
    ids = np.arange(5)
    env.reset(ids, ids + 5)
    for lane, rows in enumerate(env.lanes):
        env.send(lane, np.full(len(ids[rows]), 2))
    with pytest.raises(ValueError, match="lane 0 needs 2 actions, got 3"):
        env.send(0, np.array([2, 2, 2]))
    # As if the user had pressed Ctrl-C here and started again.
    assert contract.same(env.reset(ids, ids), undisturbed.reset(ids, ids))
    for action in contract.random_actions(env, np.random.default_rng(0), 5):
        for lane, rows in enumerate(env.lanes):
            env.send(lane, action[rows])
        expected = undisturbed.step(action)
        for lane, rows in enumerate(env.lanes):
            for ours, theirs in zip(env.receive(lane), expected, strict=True):
                assert np.array_equal(ours, theirs[rows])


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("counters", 1, -1),
        ("counters", 2, 10**9),
        ("counters", 3, 18),
        ("counters", 4, 256),
        ("state_size", ..., 10**6),
        ("state_size", ..., -1),
    ],
)
def test_a_snapshot_with_impossible_numbers_is_refused(two_batches, name, column, value):
    env, ids = two_batches[0], np.arange(5)
    env.reset(ids, ids)
    snapshot = {name: array.copy() for name, array in env.snapshot(ids).items()}
    env.require_possible(snapshot)
    snapshot[name][2, column] = value
    with pytest.raises(ValueError, match="not a snapshot of ALE/Pong-v5: a number is out of range"):
        env.require_possible(snapshot)


def test_a_state_that_the_emulator_refuses_is_one_line(two_batches):
    env, ids = two_batches[0], np.arange(5)
    env.reset(ids, ids)
    snapshot = {name: array.copy() for name, array in env.snapshot(ids).items()}
    env.require_possible(snapshot)
    assert np.array_equal(env.restore(ids, snapshot), snapshot["frames"])
    snapshot["state_size"][:] = 1
    with pytest.raises(EnvRaisedError, match="the emulator does not accept the saved state"):
        env.require_possible(snapshot)
    env.reset(ids, ids)


def test_a_forged_length_in_a_state_takes_no_memory(two_batches):
    """Bytes 24 to 27 are the length of a text, which the emulator would fill for 15 seconds."""
    env, ids = two_batches[0], np.arange(5)
    env.reset(ids, ids)
    snapshot = {name: array.copy() for name, array in env.snapshot(ids).items()}
    snapshot["state"][:, 24:28] = (255, 255, 255, 127)
    started = time.perf_counter()
    with pytest.raises(EnvRaisedError, match="the emulator does not accept the saved state"):
        env.require_possible(snapshot)
    assert time.perf_counter() - started < 5
    env.reset(ids, ids)


@pytest.mark.parametrize(("num_envs", "edges"), [(1, [0, 1]), (29, [0, 14, 29])])
def test_lanes_do_not_depend_on_the_number_of_workers(monkeypatch, num_envs, edges):
    made = []

    class NoWorkers(Workers):
        def __init__(self, build, arguments, **options):
            super().__init__(build, [], **options)
            made.append([0, *(stop for *_, stop in arguments)])

        def receive(self, worker, seconds=None):
            return None

    monkeypatch.setattr("trellis.envs.atari.pool.Workers", NoWorkers)
    for workers in (1, 3, 7, 64):
        env = AtariBatch("ALE/Pong-v5", "pong", num_envs, workers=workers)
        assert [0, *(rows.stop for rows in env.lanes)] == edges
        assert set(edges) <= set(made[-1])
        assert np.diff(made[-1]).min() >= 1
        assert len(made[-1]) == 1 + len(env.lanes) * min(workers, num_envs // len(env.lanes))


@pytest.mark.slow
def test_a_game_that_kills_its_workers_is_an_error(monkeypatch):
    env = make("Pong", 2)
    env.reset(np.arange(2), np.arange(2))
    send = env._pool.send

    def kill_and_send(command, workers):
        if command is AtariServer.step:
            os.kill(env.pids[0], signal.SIGKILL)
        send(command, workers)

    monkeypatch.setattr(env._pool, "send", kill_and_send)
    with pytest.raises(WorkerDiedError, match="died 3 times at the same command"):
        env.step(np.zeros(2, int))
    env.close()


def test_the_worker_does_not_import_jax():
    code = "import sys, trellis.envs.atari.server; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_factored_actions_are_the_products_of_their_parts():
    names = {action.name: action.value for action in ale_py.Action.__members__.values()}
    for h, horizontal in enumerate(("", "RIGHT", "LEFT")):
        for v, vertical in enumerate(("", "UP", "DOWN")):
            for f, fire in enumerate(("", "FIRE")):
                name = vertical + horizontal + fire or "NOOP"
                assert FACTORED[h, v, f] == names[name]


def test_sticky_actions_have_the_right_frequency():
    env = make("Pong", 2, sticky_actions=0.25, preprocessing="paper", noop_max=0)
    env.reset(np.arange(2), np.arange(2))
    for t in range(200):
        env.step(np.full(2, t % 2))
    stuck = env._shared["history"][:, :200] // 18
    # The number of sticky screens has P(n) = 0.25ⁿ·0.75.
    share = np.mean(stuck == 0)
    assert abs(share - 0.75) < 4 * np.sqrt(0.75 * 0.25 / stuck.size)
    assert stuck.max() <= 4
    assert not np.array_equal(stuck[0], stuck[1])
    env.close()


def test_invalid_rules_are_errors():
    assert AtariGame("space_invaders", "paper").repeat == 3
    assert AtariGame("space_invaders").repeat == AtariGame("pong", "paper").repeat == 4
    for wrong, words in [
        ({"preprocessing": "rgb"}, "one of paper, mnih-2013, gymnasium"),
        ({"action_repeat": 0}, "action_repeat must be 1 to 13, got 0"),
        ({"sticky_actions": 1.0}, r"in \[0, 1\), got 1.0"),
        ({"actions": "some"}, "minimal, full or factored, got 'some'"),
    ]:
        with pytest.raises(ValueError, match=words):
            AtariBatch("ALE/Pong-v5", "pong", 1, **wrong)


def test_games_are_listed_and_can_be_rendered():
    listed = {row.env_id: row for row in trellis.envs.list_environments()}
    assert listed["ALE/Pong-v5"].runs == "batched emulators"
    assert "Pong-v4" not in listed
    with pytest.raises(trellis.envs.UnknownEnvironmentError, match="ALE/Pong-v5"):
        trellis.envs.make("ALE/Pongg-v5", 1)
    env = make("Pong", 1, noop_max=0)
    first = env.reset(np.array([0]), np.array([0]))
    assert contract.same(first, env.reset(np.array([0]), np.array([5]))), "no-ops make the start"
    picture = env.render(0)
    assert picture.shape == (210, 160, 3)
    assert len(np.unique(picture)) > 3
    env.close()
    with pytest.raises(RuntimeError, match="is closed"):
        env.step(np.zeros(1, int))
