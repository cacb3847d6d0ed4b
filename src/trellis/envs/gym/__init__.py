"""Any Gymnasium environment as a batch."""
