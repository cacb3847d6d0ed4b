"""Turns any Gymnasium environment into a batch."""
