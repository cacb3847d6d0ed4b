"""What the samples say: returns, a critic, the surrogate objective and its constraint."""
