"""Runs training iterations: sample, estimate, step."""
