"""Collects states, actions and rewards: single path (Sec. 5.1) and vine (Sec. 5.2)."""
