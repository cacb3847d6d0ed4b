"""What surrounds the loop: configuration, state, checkpoints, logs."""
