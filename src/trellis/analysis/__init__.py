"""Read finished runs: learning curves, statistics, comparisons, videos."""
