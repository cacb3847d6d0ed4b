"""Section 3 of the paper on finite MDPs: what the guarantee costs."""
