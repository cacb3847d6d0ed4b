"""Defines policies π_θ(a|s): networks and distributions over one flat parameter vector (App. D).

A `Policy` is a network and a distribution. `build_policy` chooses both for the spaces of an
environment, and `SavedPolicy` opens a trained policy from a run folder. The names in `__all__` are
public.

Example:
    >>> from trellis.policies import MLP, DiagGaussian, Policy
    >>> policy = Policy(MLP(inputs=10, hidden=(30,), num_outputs=2), DiagGaussian(2))
    >>> policy.num_params
    394
"""

from trellis.policies.build import build_policy
from trellis.policies.cells import GRU, LSTM
from trellis.policies.convolutions import ConvNet
from trellis.policies.distributions import (
    Categoricals,
    DiagGaussian,
    Distribution,
    GaussianParams,
)
from trellis.policies.gaussians import SquashedGaussian, StateGaussian
from trellis.policies.masked import MaskedNetwork
from trellis.policies.networks import MLP, Network
from trellis.policies.policy import Policy
from trellis.policies.product import Product
from trellis.policies.recurrent import RecurrentNet
from trellis.policies.saved import SavedPolicy
from trellis.policies.sequences import Sequences
from trellis.policies.several import SeveralNetwork, VectorEncoder

__all__ = [
    "GRU",
    "LSTM",
    "MLP",
    "Categoricals",
    "ConvNet",
    "DiagGaussian",
    "Distribution",
    "GaussianParams",
    "MaskedNetwork",
    "Network",
    "Policy",
    "Product",
    "RecurrentNet",
    "SavedPolicy",
    "Sequences",
    "SeveralNetwork",
    "SquashedGaussian",
    "StateGaussian",
    "VectorEncoder",
    "build_policy",
]
