"""Environments written in JAX, as pure functions that run inside compiled programs."""
