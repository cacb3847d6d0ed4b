"""Appendix C and Section 6 of the paper: TRPO with one part changed at a time."""
