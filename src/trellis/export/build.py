"""Builds the program of a policy: observations, network, memory and choice of the action."""

import numpy as np

from trellis.export.choices import add_actions
from trellis.export.features import add_features, add_mask, mask_arrays, observation_arrays
from trellis.export.layers import add_network
from trellis.export.program import CARRY, NEXT_CARRY, Builder, Input, Output, Program
from trellis.policies.masked import MaskedNetwork
from trellis.policies.saved import SavedPolicy


def build_program(saved: SavedPolicy) -> Program:
    """Return the program that computes the most probable action of a policy.

    Raises:
        ExportError: The policy has a network or distribution that has no export.
    """
    policy, (observations, actions) = saved.policy, saved.spaces
    weights, _ = policy.unflatten(saved.theta.astype(np.float32))
    parts = observation_arrays(saved)
    inputs = [part.input for part in parts] + mask_arrays(observations)
    shape, dtype = (policy.carry_size,), np.dtype(np.float32)
    if policy.carry_size:
        inputs.append(Input(CARRY, shape, dtype))
    builder = Builder(inputs)
    network = policy.network
    network = network.network if isinstance(network, MaskedNetwork) else network
    features = add_features(builder, saved, parts)
    carry = builder.input(CARRY) if policy.carry_size else None
    values, carry = add_network(builder, network, weights, features, carry)
    mask = add_mask(builder, observations)
    outputs = [*add_actions(builder, policy.distribution, actions, values, mask)]
    if carry is not None:
        outputs.append(Output(NEXT_CARRY, shape, dtype, carry))
    return Program(builder.inputs, tuple(builder.nodes), tuple(outputs))
