"""Searches settings with Optuna: search spaces, resumable studies and their best settings."""
