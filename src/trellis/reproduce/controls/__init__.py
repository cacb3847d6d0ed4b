"""Controls that look for the cause of vine's short gaits on the hopper."""
