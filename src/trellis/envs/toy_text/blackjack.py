"""Implements Gymnasium's Blackjack-v1 as a NumPy batch (Sutton and Barto, 2018, Example 5.1)."""

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis.envs.batch import Step
from trellis.envs.classic.canvas import BLUE, GOLD, GREY, RED, Canvas
from trellis.envs.toy_text.random_batch import RandomBatch

GOAL = 21
DEALER_STOPS = 17
SUM, ACE, CARDS = range(3)
"""Rows of a hand: sum of its cards with aces as 1, whether it has an ace, number of cards."""
PLAYER, DEALER = slice(0, 3), slice(3, 6)
TOP_CARD = 6
"""Row of the dealer's first card, which the player sees."""
Hands = NDArray[np.int64]
"""Hands of n environments, (3, n)."""


class Blackjack(RandomBatch):
    """Batch of Gymnasium's Blackjack-v1: the same seed and actions give the same bits.

    Args:
        env_id: Id of the environment.
        num_envs: Size of the batch.
        max_episode_steps: Time limit; None for no limit.
        natural: Whether a natural (an ace and a ten) pays 1.5.
        sab: Whether to follow Sutton and Barto's rules, which ignore `natural`.
    """

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        *,
        max_episode_steps: int | None = None,
        natural: bool = False,
        sab: bool = False,
    ):
        observation_space = spaces.Tuple([spaces.Discrete(n) for n in (32, 11, 2)])
        hand, limit = (32, 2, 32), max_episode_steps
        super().__init__(
            *(env_id, num_envs, (*hand, *hand, 11), observation_space, spaces.Discrete(2)),
            max_episode_steps=limit,
        )
        self._natural, self._sab = natural, sab

    def _observe(self, ids: NDArray[np.int64] | slice) -> tuple[NDArray[np.int64], ...]:
        hands = self._state[PLAYER][:, ids]
        return value(hands), self._state[TOP_CARD, ids].copy(), usable_ace(hands).astype(np.int64)

    def _reset(
        self, ids: NDArray[np.int64], seeds: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], ...]:
        self._streams.seed(ids, seeds)
        self._state[:, ids] = 0
        self._deal(DEALER, ids)
        self._state[TOP_CARD, ids] = self._state[DEALER][SUM, ids]
        self._deal(DEALER, ids)
        self._deal(PLAYER, ids)
        self._deal(PLAYER, ids)
        # Gymnasium chooses the look of the dealer's card with the same generator.
        self._streams.integers(ids, 4)
        self._streams.integers(ids[self._state[TOP_CARD, ids] == 10], 3)
        return self._observe(ids)

    def _step(self, actions: NDArray[np.int64], active: NDArray[np.bool_]) -> Step:
        reward = np.zeros(self.num_envs)
        hit, stick = (
            np.flatnonzero(active & (actions == 1)),
            np.flatnonzero(active & (actions == 0)),
        )
        self._deal(PLAYER, hit)
        bust = hit[value(self._state[PLAYER][:, hit]) > GOAL]
        reward[bust] = -1.0
        reward[stick] = self._play_out(stick)
        terminated = np.zeros(self.num_envs, bool)
        terminated[bust] = terminated[stick] = True
        return Step(self._observe(slice(None)), reward, terminated, np.zeros(self.num_envs, bool))

    def _play_out(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Deal cards to the dealer in the games `ids` and return their rewards."""
        playing = ids
        while playing.size:
            playing = playing[value(self._state[DEALER][:, playing]) < DEALER_STOPS]
            self._deal(DEALER, playing)
        player, dealer = self._state[PLAYER][:, ids], self._state[DEALER][:, ids]
        reward = np.sign(score(player) - score(dealer)).astype(np.float64)
        if self._sab:
            reward[is_natural(player) & ~is_natural(dealer)] = 1.0
        elif self._natural:
            reward[is_natural(player) & (reward == 1.0)] = 1.5
        return reward

    def _deal(self, hand: slice, ids: NDArray[np.int64]) -> None:
        """Deal one card of an infinite deck to one hand in each of the games `ids`."""
        card = np.minimum(self._streams.integers(ids, 13) + 1, 10)
        hands = self._state[hand]
        hands[SUM, ids] += card
        hands[ACE, ids] |= card == 1
        hands[CARDS, ids] += 1

    def render(self, index: int = 0) -> NDArray[np.uint8]:
        """Return a picture of environment `index`, (160, 480, 3).

        The upper row has a dot per point of the dealer's first card. The lower row has a dot per
        point of the player, golden with a usable ace; a line marks 21.
        """
        canvas = Canvas(480, 160, 0.0, 0.0, 20.0)
        hands = self._state[PLAYER][:, [index]]
        colour = GOLD if usable_ace(hands)[0] else BLUE
        for point in range(int(self._state[TOP_CARD, index])):
            canvas.disc(point + 1.0, 6.0, 0.4, RED)
        for point in range(int(value(hands)[0])):
            canvas.disc(point + 1.0, 2.0, 0.4, colour)
        canvas.line((GOAL + 0.5, 0.5), (GOAL + 0.5, 3.5), 0.1, GREY)
        return canvas.picture


def usable_ace(hands: Hands) -> NDArray[np.bool_]:
    """Return whether an ace counts as 11 in each hand."""
    return (hands[ACE] == 1) & (hands[SUM] + 10 <= GOAL)


def value(hands: Hands) -> NDArray[np.int64]:
    """Return the total of each hand."""
    return hands[SUM] + 10 * usable_ace(hands)


def score(hands: Hands) -> NDArray[np.int64]:
    """Return the total of each hand, or 0 if it is more than 21."""
    total = value(hands)
    return np.where(total > GOAL, 0, total)


def is_natural(hands: Hands) -> NDArray[np.bool_]:
    """Return whether each hand is an ace and a ten."""
    return (hands[CARDS] == 2) & (hands[ACE] == 1) & (hands[SUM] == 11)
