"""Train on a Ray cluster: the same shards, held by workers on other machines."""
