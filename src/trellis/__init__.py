"""Trellis: Trust Region Policy Optimization (Schulman et al., 2015) as real software."""

__version__ = "0.1.0"
