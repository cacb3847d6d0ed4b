"""Computes convolutions and their derivatives in code that numba compiles."""
