"""Provides MuJoCo tasks on batched physics."""
