"""Provides Atari games as batches of emulators in worker processes (Sec. 8.2)."""
