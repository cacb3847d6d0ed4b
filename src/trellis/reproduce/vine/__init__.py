"""Section 5.2 of the paper: the variance of vine's estimates, and a picture of its branches."""
