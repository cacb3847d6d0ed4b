"""Trains on a Ray cluster: workers on other machines hold the shards."""
