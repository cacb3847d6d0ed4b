"""Provides classic control tasks as NumPy batches."""
