"""Search without gradients over flat θ: CEM and CMA, which Sec. 8.1 compares TRPO with."""
