"""Takes trust-region steps: curvature, conjugate gradient and line search (Sec. 6, App. C)."""
