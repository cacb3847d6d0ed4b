"""How the parameters move: curvature, conjugate gradient, line search, the step."""
