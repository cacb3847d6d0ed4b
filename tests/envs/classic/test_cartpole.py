import gymnasium
import numpy as np
import pytest

from trellis.envs.classic import cartpole
from trellis.envs.classic.cartpole import CartPole, PaperCartPole


@pytest.mark.parametrize("sutton_barto_reward", [False, True])
def test_equals_gymnasium_bit_for_bit(sutton_barto_reward):
    rows, rng = 20, np.random.default_rng(0)
    ours = CartPole(rows, sutton_barto_reward=sutton_barto_reward)
    theirs = [
        gymnasium.make("CartPole-v1", sutton_barto_reward=sutton_barto_reward) for _ in range(rows)
    ]
    assert ours.observation_space == theirs[0].observation_space
    assert ours.action_space == theirs[0].action_space
    observation = ours.reset(np.arange(rows), np.arange(rows))
    for row, env in enumerate(theirs):
        np.testing.assert_array_equal(observation[row], env.reset(seed=row)[0])
    next_seed = rows
    for _ in range(600):
        # Mostly push against the fall: long episodes, some of which reach the time limit.
        lean = (observation[:, 2] + 0.5 * observation[:, 3] + 0.1 * observation[:, 1]) > 0
        actions = np.where(rng.random(rows) < 0.02, rng.integers(2, size=rows), lean)
        step = ours.step(actions)
        observation = step.observation.copy()
        for row, env in enumerate(theirs):
            theirs_now, reward, terminated, truncated, _ = env.step(int(actions[row]))
            assert step.observation.dtype == theirs_now.dtype
            np.testing.assert_array_equal(step.observation[row], theirs_now)
            assert step.reward[row] == reward
            assert (step.terminated[row], step.truncated[row]) == (terminated, truncated)
            if terminated or truncated:
                observation[row] = ours.reset(np.array([row]), np.array([next_seed]))[0]
                np.testing.assert_array_equal(observation[row], env.reset(seed=next_seed)[0])
                next_seed += 1
    assert next_seed > rows


def test_accelerations_solve_the_equations_of_motion():
    """M(θ) (ẍ, θ̈) = forces; the pole is a uniform rod with moment of inertia 4/3 m l²."""
    rng = np.random.default_rng(0)
    state, force = rng.normal(size=(4, 50)), rng.normal(size=50)
    friction = 0.3, 0.02
    pull, turn = cartpole.accelerations(state, force, *friction)
    m, big, half = cartpole.POLE_MASS, cartpole.TOTAL_MASS, cartpole.HALF_LENGTH
    for k, (_, velocity, angle, spin) in enumerate(state.T):
        mass = [
            [big, m * half * np.cos(angle)],
            [m * half * np.cos(angle), 4 / 3 * m * half**2],
        ]
        forces = [
            force[k] + m * half * spin**2 * np.sin(angle) - friction[0] * np.sign(velocity),
            m * cartpole.GRAVITY * half * np.sin(angle) - friction[1] * spin,
        ]
        np.testing.assert_allclose([pull[k], turn[k]], np.linalg.solve(mass, forces), rtol=1e-10)


def run(env: PaperCartPole, weights: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Return the returns of the linear policy without noise."""
    observation = env.reset(np.arange(env.num_envs), seeds)
    active, total = np.ones(env.num_envs, bool), np.zeros(env.num_envs)
    while active.any():
        step = env.step(observation @ weights[:, None], active.copy())
        total += step.reward
        active &= ~(step.terminated | step.truncated)
        observation = step.observation
    return total


def test_a_linear_policy_balances_a_whole_episode_and_zero_force_does_not():
    env = PaperCartPole(32)
    assert (run(env, np.array([0.1, 0.2, 3.0, 0.6]), np.arange(32)) == 1000).all()
    assert run(env, np.zeros(4), np.arange(32)).max() < 300


def test_force_is_ten_newtons_at_one_and_clipped_beyond():
    env = PaperCartPole(3)
    env.reset(np.arange(3), np.zeros(3, int))
    step = env.step(np.array([[0.5], [1.0], [7.0]]))
    velocity = step.observation[:, 1]
    assert velocity[1] == velocity[2]
    assert velocity[1] - velocity[0] == pytest.approx(
        0.02 * 5 / (1.1 - 0.1 / (4 / 3)), rel=1e-2
    )  # half of 10 N over the effective mass near upright


def test_failure_at_the_limits_has_no_reward_and_is_inside_the_space():
    env = PaperCartPole(2)
    env.reset(np.arange(2), np.arange(2))
    env.restore(
        np.arange(2),
        {
            "state": np.array([[2.39, 3.0, 0.0, 0.0], [0.0, 0.0, -0.2, -1.0]]),
            "elapsed": np.zeros(2, np.int64),
            "seed": np.zeros(2, np.int64),
        },
    )
    step = env.step(np.zeros((2, 1)))
    assert step.terminated.all()
    assert not step.reward.any()
    assert all(env.observation_space.contains(row) for row in step.observation)


def test_picture_shows_cart_and_pole_where_they_are():
    env = PaperCartPole(1)
    env.reset(np.arange(1), np.arange(1))
    rows = {**env.snapshot(np.arange(1)), "state": np.array([[1.2, 0.0, 0.1, 0.0]])}
    env.restore(np.arange(1), rows)
    picture = env.render(0)
    cart = np.argwhere((picture == (60, 60, 60)).all(axis=2))
    pole = np.argwhere((picture == (202, 152, 101)).all(axis=2))
    assert cart[:, 1].mean() == pytest.approx(480 * 0.75, abs=3)
    assert pole[pole[:, 0].argmin(), 1] > cart[:, 1].mean()  # leans to the right
