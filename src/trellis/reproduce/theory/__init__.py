"""Section 3 on finite MDPs."""
