"""Policies with memory against policies without, on tasks that hide a part of their state."""
