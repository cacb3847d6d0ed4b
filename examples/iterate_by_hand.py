"""Write your own training loop: `Trainer.iterate` returns the next state and the metrics."""

import dataclasses

from trellis import Trainer, presets


def main(iterations: int = 30) -> float:
    trainer = Trainer(dataclasses.replace(presets.resolve("CartPole-v1"), seed=1))
    state = trainer.start()
    for _ in range(iterations):
        state, metrics = trainer.iterate(state)
        if metrics["iteration"] % 10 == 0:
            # There is no return if no episode ended: good policies outlast an iteration.
            mean_return = metrics.get("episode_return_mean", float("nan"))
            print(
                f"{metrics['steps']:>6} steps  return {mean_return:6.1f}"
                f"  KL {metrics['kl']:.4f}  {metrics['status']}"
            )

    # A checkpoint holds the environments too, so training from it repeats bit for bit.
    arrays, values = trainer.to_checkpoint(state)
    one, _ = trainer.iterate(state)
    again, _ = trainer.iterate(trainer.from_checkpoint(arrays, values))
    assert one.theta.tobytes() == again.theta.tobytes()
    return trainer.evaluate(state, episodes=10).mean_return


if __name__ == "__main__":
    print(f"mean return {main():.1f}")
