"""V(s): what a state is worth under the policy. The paper has none; people expect one today.

Two kinds with one interface: least squares on fixed features, and a network fitted by Adam. Both
keep all they know in a dictionary of arrays, which is what a checkpoint writes.
"""

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from trellis.policies.convolutions import ConvNet
from trellis.policies.networks import MLP, Network, unflatten
from trellis.sampling.frames import Stacks

logger = logging.getLogger(__name__)

Array = Any  # a NumPy or a JAX array
CriticState = dict[str, np.ndarray]

PICTURES_AT_ONCE = 32
"""That V, or a gradient, is computed of together: few enough to stay near the cache."""


class Critic(Protocol):
    """What the trainer asks of a critic."""

    def init(self, rng: np.random.Generator) -> CriticState: ...

    def predict(self, state: CriticState, observation: Array, age: Array) -> np.ndarray:
        """V of observations (..., features) that are `age` (...) steps into their episodes."""
        ...

    def fit(
        self,
        state: CriticState,
        observation: Array,
        age: Array,
        target: Array,
        rng: np.random.Generator,
    ) -> tuple[CriticState, float]:
        """Moves V towards `target` (n,); the new state and the mean squared error on the way."""
        ...


@dataclass(frozen=True)
class MLPCritic:
    """A tanh network, after convolutions if it looks at pictures, fitted by epochs of minibatches
    that are compiled as one program."""

    features: int | tuple[int, int, int]
    """How many, or (frames, height, width)."""
    hidden: tuple[int, ...] = (64, 64)
    learning_rate: float = 1e-3
    epochs: int = 10
    minibatch: int = 128
    channels: tuple[int, ...] = (16, 16)
    """Of the convolutions."""

    @property
    def network(self) -> MLP | ConvNet:
        """features → 1."""
        if isinstance(self.features, int):
            return MLP(self.features, self.hidden, 1, output_scale=1.0)
        return ConvNet(self.features, self.channels, self.hidden, 1, output_scale=1.0)

    def init(self, rng: np.random.Generator) -> CriticState:
        """Orthogonal weights and a fresh Adam."""
        weights = np.concatenate([w.ravel() for w in self.network.init(rng)]).astype(np.float32)
        zeros = np.zeros_like(weights)
        return {
            "weights": weights,
            "adam_mu": zeros,
            "adam_nu": zeros,
            "adam_count": np.zeros((), np.int32),
        }

    def predict(self, state: CriticState, observation: Array, age: Array) -> np.ndarray:
        """By NumPy: the number of rows varies from call to call. Pictures are gathered, and looked
        at, a few at a time."""
        del age
        if not isinstance(self.features, int):
            return self._predict_pictures(state, observation)
        weights, _ = unflatten(self.network, state["weights"])
        return self.network.apply(weights, np.asarray(observation, np.float32))[..., 0]

    def _predict_pictures(self, state: CriticState, observation: Array) -> np.ndarray:
        lead, stack = observation.shape[:-3], observation.shape[-3:]
        if isinstance(observation, Stacks):
            rows, frames = observation.index.reshape(-1, stack[0]), observation.store.on_device
        else:
            rows, frames = observation.reshape(-1, *stack), None
        n = len(rows)
        pieces = 1
        while pieces * PICTURES_AT_ONCE < n:  # a handful of sizes to compile for
            pieces *= 2
        padded = np.zeros((pieces * PICTURES_AT_ONCE, *rows.shape[1:]), rows.dtype)
        padded[:n] = rows
        count = -(-n // PICTURES_AT_ONCE)
        chunks = padded.reshape(pieces, PICTURES_AT_ONCE, *rows.shape[1:])
        values = _predict(self.network, state["weights"], chunks, count, frames)
        return np.asarray(values).reshape(-1)[:n].reshape(lead)

    def fit(
        self,
        state: CriticState,
        observation: Array,
        age: Array,
        target: Array,
        rng: np.random.Generator,
    ) -> tuple[CriticState, float]:
        """`epochs` passes of Adam, each in an order of its own."""
        del age
        n = len(target)
        size = min(self.minibatch, n)
        per_epoch = n // size
        order = np.stack([rng.permutation(n)[: per_epoch * size] for _ in range(self.epochs)])
        batches = order.reshape(self.epochs * per_epoch, size).astype(np.int32)
        frames = None
        if isinstance(observation, Stacks):
            observation, frames = observation.index, observation.store.on_device
        elif isinstance(self.features, int):
            observation = np.asarray(observation, np.float32)
        new, loss = _fit(
            self.network,
            self.learning_rate,
            state,
            observation,
            np.asarray(target, np.float32),
            batches,
            frames,
        )
        fitted = {name: np.asarray(value) for name, value in new.items()}
        if not all(np.isfinite(value).all() for value in fitted.values()):
            logger.warning(
                "the critic's fit left the numbers (loss %s), so it stays as it was before; a"
                " smaller critic_learning_rate may help, or normalize_rewards",
                float(loss),
            )
            return state, float(loss)
        return fitted, float(loss)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _fit(
    network: Network,
    learning_rate: float,
    state: Any,
    observation: Array,
    target: Array,
    batches: Array,
    frames: Array | None,
) -> tuple[Any, Array]:
    adam = optax.scale_by_adam()

    def loss_of(vector: Array, rows: Array) -> Array:
        weights, _ = unflatten(network, vector)
        error = network.apply(weights, _look(frames, observation[rows]))[:, 0] - target[rows]
        return jnp.mean(error * error)

    def descend(carry: tuple[Array, Any], rows: Array) -> tuple[tuple[Array, Any], Array]:
        vector, moments = carry
        loss, gradient = _in_pieces(jax.value_and_grad(loss_of), network, vector, rows)
        direction, moments = cast(Any, adam.update(gradient, moments))
        return (vector - learning_rate * direction, moments), loss

    start = optax.ScaleByAdamState(
        count=jnp.asarray(state["adam_count"]),
        mu=jnp.asarray(state["adam_mu"]),
        nu=jnp.asarray(state["adam_nu"]),
    )
    (vector, moments), losses = jax.lax.scan(descend, (state["weights"], start), batches)
    return {
        "weights": vector,
        "adam_mu": moments.mu,
        "adam_nu": moments.nu,
        "adam_count": moments.count,
    }, jnp.mean(losses)


@functools.partial(jax.jit, static_argnums=0)
def _predict(
    network: Network, vector: Array, chunks: Array, count: Array, frames: Array | None
) -> Array:
    """V of the first `count` chunks, (chunks, size)."""
    weights, _ = unflatten(network, vector)

    def body(index: Array, values: Array) -> Array:
        value = network.apply(weights, _look(frames, chunks[index]))[:, 0]
        return values.at[index].set(value)

    return jax.lax.fori_loop(0, count, body, jnp.zeros(chunks.shape[:2], vector.dtype))


def _in_pieces(
    mean_of: Callable[[Array, Array], Any], network: Network, vector: Array, rows: Array
) -> Any:
    """The mean over a minibatch of what `mean_of` gives for some of its rows; a minibatch of
    pictures a few at a time, which is faster than all of it at once."""
    if isinstance(network, MLP) or len(rows) <= PICTURES_AT_ONCE:
        return mean_of(vector, rows)
    whole = len(rows) // PICTURES_AT_ONCE * PICTURES_AT_ONCE

    def add(total: Any, piece: Array) -> tuple[Any, None]:
        more = mean_of(vector, piece)
        return jax.tree.map(lambda a, b: a + len(piece) / len(rows) * b, total, more), None

    total = jax.tree.map(jnp.zeros_like, jax.eval_shape(mean_of, vector, rows))
    total, _ = jax.lax.scan(add, total, rows[:whole].reshape(-1, PICTURES_AT_ONCE))
    return total if whole == len(rows) else add(total, rows[whole:])[0]


def _look(frames: Array | None, observation: Array) -> Array:
    """Observations as they are seen: stacks of frames where they are indices of such."""
    return observation if frames is None else frames[observation]


@dataclass(frozen=True)
class LinearCritic:
    """Ridge regression on the observation, its squares, and powers of the time in the episode."""

    features: int
    ridge: float = 1e-5

    def init(self, rng: np.random.Generator) -> CriticState:
        """Worth nothing."""
        del rng
        return {"coefficients": np.zeros(2 * self.features + 4)}

    def predict(self, state: CriticState, observation: Array, age: Array) -> np.ndarray:
        """The features times their coefficients."""
        return (self._expand(observation, age) @ state["coefficients"]).astype(np.float32)

    def fit(
        self,
        state: CriticState,
        observation: Array,
        age: Array,
        target: Array,
        rng: np.random.Generator,
    ) -> tuple[CriticState, float]:
        """In closed form."""
        del rng
        x = self._expand(observation, age)
        gram = x.T @ x + self.ridge * len(x) * np.eye(x.shape[1])
        coefficients = np.linalg.solve(gram, x.T @ np.asarray(target, np.float64))
        error = x @ state["coefficients"] - target
        return {"coefficients": coefficients}, float(np.mean(error * error))

    def _expand(self, observation: Array, age: Array) -> np.ndarray:
        x = np.clip(np.asarray(observation, np.float64), -10, 10)
        t = np.asarray(age, np.float64)[..., None] / 100.0
        return np.concatenate([x, x * x, t, t**2, t**3, np.ones_like(t)], axis=-1)
