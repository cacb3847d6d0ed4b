"""Atari games as batches of emulators in worker processes."""
