"""Section 5.2: what vine's rollouts and common random numbers change."""
