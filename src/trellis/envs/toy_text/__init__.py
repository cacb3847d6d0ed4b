"""Gymnasium's toy texts as batches: small tables of transitions, and Blackjack."""
