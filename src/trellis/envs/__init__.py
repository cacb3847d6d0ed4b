"""What the policy acts in: batches of environments."""
