"""Defines critics, which estimate the value V(s) of a state under the policy.

Departs from the paper, which has no critic. There are two kinds with one interface: least squares
on fixed features, and a network fitted by Adam. Each keeps its whole state in a dictionary of
arrays, which checkpoints store.
"""

import functools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from trellis.arrays import Array
from trellis.config import EstimationConfig
from trellis.estimation import picture_critic
from trellis.inputs import Inputs
from trellis.policies.compiled_network import is_compilable
from trellis.policies.convolutions import ConvNet
from trellis.policies.networks import MLP, Network, unflatten
from trellis.policies.several import SeveralNetwork
from trellis.policies.several_build import several_network
from trellis.sampling.frames import gather_frames, split_frames
from trellis.spaces import SeveralFeatures

logger = logging.getLogger(__name__)

CriticState = dict[str, np.ndarray]
"""Parameters of a critic and of its optimizer, by name."""

PICTURES_AT_ONCE = 32
"""Number of pictures that are evaluated together; small enough for the cache."""


def average_critics(one: CriticState, other: CriticState, share: float) -> CriticState:
    """Return the weighted mean of two critics.

    Args:
        one: State of the first critic.
        other: State of the second critic.
        share: Weight of the second critic, in [0, 1].
    """

    def average(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        # The count of Adam steps is an integer and has no mean, so the larger one is used.
        return np.maximum(a, b) if a.dtype.kind in "iu" else a + (b - a) * share

    return {name: average(np.asarray(one[name]), np.asarray(other[name])) for name in one}


@dataclass(frozen=True)
class MLPCritic:
    """Critic that is a network: tanh layers, preceded by convolutions for pictures.

    The whole fit is one compiled program.
    """

    features: int | tuple[int, int, int] | SeveralFeatures
    """Number of features, or (frames, height, width) of pictures, or the parts of both. What
    follows the features of an observation, an action mask, is ignored."""
    settings: EstimationConfig
    """Hidden layers, learning rate, epochs and minibatches."""
    channels: tuple[int, ...] = (16, 16)
    """Channels of the convolutions."""

    @property
    def network(self) -> MLP | ConvNet | SeveralNetwork:
        """Network with one output, the value."""
        hidden = self.settings.critic_hidden
        if isinstance(self.features, SeveralFeatures):
            return several_network(self.features, self.channels, hidden, 1, 1.0)
        if isinstance(self.features, int):
            return MLP(self.features, hidden, 1, output_scale=1.0)
        return ConvNet(self.features, self.channels, hidden, 1, output_scale=1.0)

    def init(self, rng: np.random.Generator) -> CriticState:
        """Return the initial state: orthogonal weights and the state of Adam."""
        weights = np.concatenate([w.ravel() for w in self.network.init(rng)]).astype(np.float32)
        zeros = np.zeros_like(weights)
        return {
            "weights": weights,
            "adam_mu": zeros,
            "adam_nu": zeros,
            "adam_count": np.zeros((), np.int32),
        }

    def predict(self, state: CriticState, observation: Array, age: Array) -> np.ndarray:
        """Return V of observations (..., features).

        NumPy computes the values of vectors, because the number of observations varies from call to
        call. Pictures are gathered and evaluated a few at a time.

        Args:
            state: State of the critic.
            observation: Normalized observations.
            age: Time in the episode of each observation; this critic ignores it.
        """
        del age
        if not isinstance(self.features, int) or isinstance(self.features, SeveralFeatures):
            return self._predict_pictures(state, observation)
        weights, _ = unflatten(self.network, state["weights"])
        observation = np.asarray(observation, np.float32)[..., : self.features]
        return self.network.apply(weights, observation)[..., 0]

    def _predict_pictures(self, state: CriticState, observation: Array) -> np.ndarray:
        if isinstance(observation, Inputs):
            lead = observation.lead
            rows, frames = split_frames(observation.reshape(math.prod(lead), -1))
        else:
            lead, stack = observation.shape[:-3], observation.shape[-3:]
            rows, frames = split_frames(observation)
            rows = rows.reshape(-1, *(stack if frames is None else stack[:1]))
        if frames is not None and is_compilable(network := self.network):
            stored = jax.tree.map(np.asarray, frames)
            values = picture_critic.predict(network, state["weights"], stored, rows)
            return values.reshape(lead)
        n = len(rows)
        pieces = 1
        while pieces * PICTURES_AT_ONCE < n:  # powers of 2, so that few sizes are compiled
            pieces *= 2

        def chunked(leaf: np.ndarray) -> np.ndarray:
            padded = np.zeros((pieces * PICTURES_AT_ONCE, *leaf.shape[1:]), leaf.dtype)
            padded[:n] = leaf
            return padded.reshape(pieces, PICTURES_AT_ONCE, *leaf.shape[1:])

        count, chunks = -(-n // PICTURES_AT_ONCE), jax.tree.map(chunked, rows)
        values = _predict(self.network, state["weights"], chunks, count, frames)
        return np.asarray(values).reshape(-1)[:n].reshape(lead)

    def minibatches(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return the samples of each gradient step, (steps, size); every epoch has its own order.

        Args:
            n: Number of samples.
            rng: Source of the orders.
        """
        epochs, size = self.settings.critic_epochs, min(self.settings.critic_minibatch, n)
        per_epoch = n // size
        order = np.stack([rng.permutation(n)[: per_epoch * size] for _ in range(epochs)])
        return order.reshape(epochs * per_epoch, size).astype(np.int32)

    def fit(
        self,
        state: CriticState,
        observation: Array,
        age: Array,
        target: Array,
        rng: np.random.Generator,
        learning_rate: float | None = None,
    ) -> tuple[CriticState, float]:
        """Fit V to `target` with Adam; every epoch has its own random order.

        If the fit diverges, the state stays as it was, with a warning.

        Args:
            state: State of the critic.
            observation: Normalized observations, (n, ...).
            age: Time in the episode of each observation; this critic ignores it.
            target: Returns, (n,).
            rng: Source of the order of minibatches.
            learning_rate: Learning rate of this fit; None for that of the settings.

        Returns:
            The new state, and the mean squared error during the fit.
        """
        del age
        batches = self.minibatches(len(target), rng)
        observation, frames = split_frames(observation)
        if isinstance(self.features, int) and not isinstance(self.features, SeveralFeatures):
            observation = np.asarray(observation, np.float32)[..., : self.features]
        target, constant = np.asarray(target, np.float32), self.settings.critic_learning_rate
        # A rate that changes is an argument of the compiled program, which is compiled once.
        rate = None if learning_rate is None else np.float32(learning_rate)
        if frames is not None and is_compilable(network := self.network):
            length = constant if rate is None else float(rate)
            pictures = jax.tree.map(np.asarray, frames), observation, target, batches
            new, loss = picture_critic.fit(network, length, state, *pictures)
        else:
            settings = self.network, constant, state
            new, loss = fit_network(*settings, observation, target, batches, frames, rate)
        fitted = {name: np.asarray(value) for name, value in new.items()}
        if not all(np.isfinite(value).all() for value in fitted.values()):
            warn_of_divergence(float(loss))
            return state, float(loss)
        return fitted, float(loss)


def warn_of_divergence(loss: float) -> None:
    """Warn that a fit by Adam diverged, so that the critic stays as it was."""
    logger.warning(
        "Critic fit diverged (loss %s); keeping the previous critic. Try a smaller"
        " critic_learning_rate, or normalize_rewards.",
        loss,
    )


@functools.partial(jax.jit, static_argnums=(0, 1))
def fit_network(
    network: Network,
    learning_rate: float,
    state: Any,
    observation: Any,
    target: Array,
    batches: Array,
    frames: Any = None,
    rate: Array | None = None,
) -> tuple[Any, Array]:
    """Fit a network to targets with Adam, as one program.

    Args:
        network: Network with one output.
        learning_rate: Learning rate, if it is constant.
        state: State of an `MLPCritic`.
        observation: Observations, or indices into frames, (n, ...).
        target: Targets, (n,).
        batches: Samples of each gradient step, from `MLPCritic.minibatches`.
        frames: Frames of pictures; None for vectors.
        rate: Learning rate that replaces `learning_rate`; None for that one.

    Returns:
        The new state, and the mean squared error during the fit.
    """
    adam = optax.scale_by_adam()

    def loss_of(vector: Array, rows: Array) -> Array:
        weights, _ = unflatten(network, vector)
        mine = gather_frames(frames, jax.tree.map(lambda leaf: leaf[rows], observation))
        error = network.apply(weights, mine)[:, 0] - target[rows]
        return jnp.mean(error * error)

    def descend(carry: tuple[Array, Any], rows: Array) -> tuple[tuple[Array, Any], Array]:
        vector, moments = carry
        loss, gradient = _in_pieces(jax.value_and_grad(loss_of), network, vector, rows)
        direction, moments = cast(Any, adam.update(gradient, moments))
        length = learning_rate if rate is None else rate
        return (vector - length * direction, moments), loss

    start = optax.ScaleByAdamState(state["adam_count"], state["adam_mu"], state["adam_nu"])
    (vector, moments), losses = jax.lax.scan(descend, (state["weights"], start), batches)
    return {
        "weights": vector,
        "adam_mu": moments.mu,
        "adam_nu": moments.nu,
        "adam_count": moments.count,
    }, jnp.mean(losses)


@functools.partial(jax.jit, static_argnums=0)
def _predict(network: Network, vector: Array, chunks: Any, count: Array, frames: Any) -> Array:
    """Return V of the observations in the first `count` chunks, (chunks, size)."""
    weights, _ = unflatten(network, vector)

    def body(index: Array, values: Array) -> Array:
        chunk = jax.tree.map(lambda leaf: leaf[index], chunks)
        value = network.apply(weights, gather_frames(frames, chunk))[:, 0]
        return values.at[index].set(value)

    shape = jax.tree.leaves(chunks)[0].shape[:2]
    return jax.lax.fori_loop(0, count, body, jnp.zeros(shape, vector.dtype))


def _in_pieces(
    mean_of: Callable[[Array, Array], Any], network: Network, vector: Array, rows: Array
) -> Any:
    """Return the mean over a minibatch, given a function that returns the mean over some rows.

    Pictures are computed a few at a time, which is faster than all at once.
    """
    if isinstance(network, MLP) or len(rows) <= PICTURES_AT_ONCE:
        return mean_of(vector, rows)
    whole = len(rows) // PICTURES_AT_ONCE * PICTURES_AT_ONCE

    def add(total: Any, piece: Array) -> tuple[Any, None]:
        more = mean_of(vector, piece)
        return jax.tree.map(lambda a, b: a + len(piece) / len(rows) * b, total, more), None

    total = jax.tree.map(jnp.zeros_like, jax.eval_shape(mean_of, vector, rows))
    total, _ = jax.lax.scan(add, total, rows[:whole].reshape(-1, PICTURES_AT_ONCE))
    return total if whole == len(rows) else add(total, rows[whole:])[0]


@dataclass(frozen=True)
class LinearCritic:
    """Critic by ridge regression on the observation, its squares, and powers of the time."""

    features: int
    """Number of features of an observation; an action mask that follows them is ignored."""
    ridge: float = 1e-5
    """Regularization per sample."""

    def init(self, rng: np.random.Generator) -> CriticState:
        """Return the initial state: all coefficients are 0."""
        del rng
        return {"coefficients": np.zeros(2 * self.features + 4)}

    def predict(self, state: CriticState, observation: Array, age: Array) -> np.ndarray:
        """Return V of observations (..., features) at time `age` (...) in their episodes."""
        return (self._expand(observation, age) @ state["coefficients"]).astype(np.float32)

    def fit(
        self,
        state: CriticState,
        observation: Array,
        age: Array,
        target: Array,
        rng: np.random.Generator,
        learning_rate: float | None = None,
    ) -> tuple[CriticState, float]:
        """Fit the coefficients to `target` (n,) in closed form, without a learning rate.

        Returns:
            The new state, and the mean squared error of the old one.
        """
        del rng, learning_rate
        x = self._expand(observation, age)
        gram = x.T @ x + self.ridge * len(x) * np.eye(x.shape[1])
        coefficients = np.linalg.solve(gram, x.T @ np.asarray(target, np.float64))
        error = x @ state["coefficients"] - target
        loss = float(np.mean(error * error))
        if not np.isfinite(coefficients).all():
            logger.warning(
                "Critic fit diverged (loss %s); keeping the previous critic. Try"
                " normalize_rewards.",
                loss,
            )
            return state, loss
        return {"coefficients": coefficients}, loss

    def _expand(self, observation: Array, age: Array) -> np.ndarray:
        x = np.clip(np.asarray(observation, np.float64)[..., : self.features], -10, 10)
        t = np.asarray(age, np.float64)[..., None] / 100.0
        return np.concatenate([x, x * x, t, t**2, t**3, np.ones_like(t)], axis=-1)


Critic: TypeAlias = MLPCritic | LinearCritic
"""A critic: `init` creates its state, `predict` returns V, `fit` fits the state to returns."""
