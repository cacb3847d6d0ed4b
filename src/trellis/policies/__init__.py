"""What acts: networks and distributions over one flat parameter vector (App. D)."""
