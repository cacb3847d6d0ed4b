"""Action masks against penalties, on a game of jumanji with many illegal moves."""
