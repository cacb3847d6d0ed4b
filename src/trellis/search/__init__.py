"""Searches for θ without gradients: CEM and CMA, the baselines of Sec. 8.1."""
