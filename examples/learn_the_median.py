"""A new task is one small class: learn column medians from one sketch.

The median is no mean of features, so no sketch gives it exactly. A Sketch-Query
Network learns, on many skewed datasets, which features to average and how to read a
median off them; then it is tried on datasets it has never seen.
"""

import numpy as np
import torch

import sketchlearn as sl
from sketchlearn.meta.config import TrainConfig
from sketchlearn.meta.datasets import MetaDataset, split_datasets
from sketchlearn.meta.episodes import AbstractRowTask, EpisodeConfig, RowProblem
from sketchlearn.meta.sqnet import TrainableSQNet
from sketchlearn.meta.trainer import train


class MedianTask(AbstractRowTask):
    """Median of each column, judged by its mean absolute error."""

    def target(self, rows):
        """Medians of the query rows, shape (episodes, n_features)."""
        return rows.median(dim=1).values

    def loss(self, prediction, target):
        """Mean squared error, smooth near the solution."""
        return ((prediction - target) ** 2).mean()

    def metric(self, prediction, target):
        """Mean absolute error of each episode."""
        return (prediction - target).abs().mean(dim=1)


def skewed_dataset(name, rng):
    """Columns with shapes from symmetric to very skewed, on either side."""
    shape = rng.uniform(0.2, 1.2, size=3)
    rows = np.exp(shape * rng.normal(size=(4000, 3)))
    return MetaDataset.from_arrays(name, rows * rng.choice([-1, 1], size=3))


rng = np.random.default_rng(0)
datasets = [skewed_dataset(f"set {n}", rng) for n in range(120)]
training, held_out = split_datasets(datasets, held_out=0.2, seed=0)
problem = RowProblem(
    MedianTask(),
    training,
    EpisodeConfig(n_features=3, episodes=16, min_rows=128, max_rows=512),
    held_out=held_out,
)

network = {"kind": "transformer", "depth": 2, "width": 32}
spec = sl.SQNetSpec(3, 24, feature=network, decoder=network)
model = TrainableSQNet(spec, seed=0)
result = train(
    model,
    problem,
    TrainConfig(
        steps=600, seconds=45, learning_rate=2e-3, schedule="cosine", clip_norm=1.0
    ),
)


class PredictTheMean(torch.nn.Module):
    """What one would do without learning: the mean instead of the median."""

    def forward(self, rows):
        """Means of the support rows."""
        return rows.mean(dim=1)


learned, mean = result.best_score, problem.validate(PredictTheMean())["score"]
print(f"{result.steps} steps in {result.seconds:.0f} s, {len(held_out)} held-out sets")
print(f"error of the mean    {mean:.3f} standard deviations")
print(f"error of the sketch  {learned:.3f} standard deviations")
assert learned < mean / 2

# Trained, it is two ordinary halves that need no torch: a map and a decoder.
net, unseen = model.freeze(), held_out[0]
rows = unseen.take(np.arange(unseen.n_rows), np.arange(3), standardize=True)
sketch = sl.sketch_rows(rows, net.feature_map(), progress=False)
found, truth = net.decoder().decode(sketch).params, np.median(rows, axis=0)
print(f"medians of {unseen.name!r}: {truth.round(2)}, from its sketch {found.round(2)}")
assert np.abs(found - truth).mean() < np.abs(truth).mean() / 2
