"""Sections 2 and 3, exact, on finite MDPs."""
