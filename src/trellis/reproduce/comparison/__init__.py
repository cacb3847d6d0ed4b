"""Section 8.1 of the paper: every method on the paper's tasks."""
