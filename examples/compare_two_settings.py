"""Compare two trust region sizes: train each with a few seeds and print the mean returns."""

import numpy as np

from trellis import TRPO


def final_return(max_kl: float, seed: int, total_timesteps: int) -> float:
    agent = TRPO("CartPole-v1", seed=seed, step={"max_kl": max_kl})
    return agent.learn(total_timesteps).evaluate(episodes=10).mean_return


def main(total_timesteps: int = 30_000, seeds: int = 3) -> dict[float, float]:
    means = {}
    for max_kl in (0.001, 0.01):
        results = [final_return(max_kl, seed, total_timesteps) for seed in range(seeds)]
        means[max_kl] = float(np.mean(results))
        print(f"δ = {max_kl:<6} mean return {means[max_kl]:6.1f}, per seed {np.round(results, 1)}")
    return means


if __name__ == "__main__":
    main()
