"""What the parts of TRPO are worth."""
