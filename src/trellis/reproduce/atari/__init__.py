"""Table 1 and Figure 5: seven games from pixels."""
