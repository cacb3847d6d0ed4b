"""The same training on more than one machine: shards, and who holds them."""
