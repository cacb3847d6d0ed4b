"""Section 8.2 of the paper: Table 1 and Figure 5, seven Atari games."""
