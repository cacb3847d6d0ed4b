"""TRPO on environments that are written in JAX: classic control, MinAtar and physics."""
