"""Estimates returns, advantages, a critic and the surrogate objective from samples (Sec. 5)."""
