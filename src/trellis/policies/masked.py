"""Gives illegal actions probability 0: a network whose logits respect the action mask of a state.

Observations are features followed by the mask, one entry per logit. The inner network sees the
features only. A logit whose action is illegal becomes the constant `MASKED`. A softmax gives it
probability exactly 0 in single and double precision, and every derivative of a constant is 0. So
sampling, log-probability, KL, entropy and Fisher product need no code for masks:

    0·log 0 is 0·MASKED = 0        ∂KL/∂logit is p_new − p_old = 0
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from trellis.arrays import Array
from trellis.inputs import Inputs
from trellis.policies.networks import Network, Recurrent
from trellis.policies.sequences import replace_states, states_of

MASKED = -1e6
"""Logit of an illegal action. Its softmax is 0, and its digits still hold sums of many factors."""
LEAST_LEGAL = MASKED / 2
"""Number between the logits of illegal actions and those of legal ones."""


@dataclass(frozen=True)
class MaskedNetwork:
    """Network for observations (..., features + mask), with illegal logits replaced by `MASKED`.

    Example:
        >>> from trellis.policies import MLP
        >>> network = MaskedNetwork(MLP(inputs=2, hidden=(), num_outputs=3), ((0, 3),))
        >>> weights = [np.zeros((2, 3)), np.zeros(3)]
        >>> network.apply(weights, np.array([[0.5, 0.1, 1, 0, 1]])).tolist()
        [[0.0, -1000000.0, 0.0]]
    """

    network: Network
    """Network that computes the outputs from the features."""
    logits: tuple[tuple[int, int], ...]
    """Ranges (start, stop) of the outputs that are logits, in the order of the mask."""

    @property
    def num_outputs(self) -> int:
        """Number of outputs per observation."""
        return self.network.num_outputs

    @property
    def mask_size(self) -> int:
        """Number of entries of a mask."""
        return sum(stop - start for start, stop in self.logits)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the weights, those of the inner network."""
        return self.network.shapes

    @property
    def values_per_state(self) -> int:
        """Approximate number of activations per state."""
        return self.network.values_per_state + self.mask_size

    def init(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Return initial weights of the inner network."""
        return self.network.init(rng)

    def apply(self, weights: Sequence[Array], observation: Any) -> Array:
        """Return the outputs (..., num_outputs) for observations (..., features + mask).

        A network with memory takes `Sequences` of such observations.
        """
        features, mask = self._split(states_of(observation))
        inner = replace_states(observation, lambda _: features)
        return self.mask_outputs(self.network.apply(weights, inner), mask)

    @property
    def carry_size(self) -> int:
        """Number of values of the carry of a network with memory; otherwise 0."""
        return getattr(self.network, "carry_size", 0)

    def step(self, weights: Sequence[Array], observation: Any, carry: Array) -> tuple[Array, Array]:
        """Return the outputs of a network with memory, and the carry for the next step."""
        features, mask = self._split(observation)
        outputs, carry = cast(Recurrent, self.network).step(weights, features, carry)
        return self.mask_outputs(outputs, mask), carry

    def _split(self, observation: Any) -> tuple[Any, Array]:
        """Return the features and the mask of observations."""
        if isinstance(observation, Inputs):
            rows = observation.rows
            features = Inputs(observation.pictures, rows[..., : -self.mask_size])
        else:
            rows, features = observation, observation[..., : -self.mask_size]
        return features, rows[..., -self.mask_size :]

    def mask_outputs(self, outputs: Array, mask: Array) -> Array:
        """Return the outputs with `MASKED` in place of the logits of illegal actions."""
        xp = outputs.__array_namespace__()
        if self.logits == ((0, self.num_outputs),):
            return xp.where(mask > 0, outputs, outputs.dtype.type(MASKED))
        pieces, first, start = [], 0, 0
        for low, high in self.logits:
            pieces += [xp.ones_like(outputs[..., first:low], dtype=bool)]
            pieces += [mask[..., start : start + high - low] > 0]
            first, start = high, start + high - low
        pieces += [xp.ones_like(outputs[..., first:], dtype=bool)]
        legal = xp.concatenate(pieces, axis=-1)
        return xp.where(legal, outputs, outputs.dtype.type(MASKED))


def legal_choices(logits: Array) -> Array:
    """Return which choices are legal, from the logits that a `MaskedNetwork` computed."""
    return logits > LEAST_LEGAL
