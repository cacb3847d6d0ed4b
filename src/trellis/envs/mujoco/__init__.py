"""MuJoCo tasks on batched physics."""
