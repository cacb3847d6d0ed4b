"""A robot that sees, against the same robot without its camera and with the full state."""
