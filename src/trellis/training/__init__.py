"""One iteration: sample, estimate, step. Shards, teams, the trainer and its state."""
