"""Section 8.1: every method on the paper's tasks."""
