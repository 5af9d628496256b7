"""The paper's (f): a network trained on, with training rows of a dataset."""

from __future__ import annotations

import importlib
from dataclasses import replace

from sketchlearn.experiments.counts.networks import TrainedNetwork
from sketchlearn.experiments.counts.sets import BinarySet
from sketchlearn.meta.config import TrainConfig

__all__ = ["fine_tuned", "tuning_config"]


def tuning_config(seconds: float) -> TrainConfig:
    """How a network is trained on for some seconds."""
    return TrainConfig(
        seconds=seconds,
        learning_rate=1e-3,
        schedule="cosine",
        clip_norm=1.0,
        validate_every=25,
    )


def fine_tuned(
    network: TrainedNetwork, data: BinarySet, config: TrainConfig
) -> TrainedNetwork:
    """The network after it was trained on with sets of a dataset's training rows.

    Parameters
    ----------
    network : TrainedNetwork
        Where to start.
    data : BinarySet
        Of which only the training rows are seen; a fifth of them chooses the weights.
    config : TrainConfig
        How long to train, and how.
    """
    # Training needs torch, which nothing else here does.
    tuning = importlib.import_module("sketchlearn.meta.fine_tuning")
    tuned = tuning.fine_tune(network.net, data.training, network.question, config)
    score = float(tuned.result.best_score)
    total = network.seconds + float(tuned.result.seconds)
    return replace(network, net=tuned.net, score=score, seconds=total, is_tuned=True)
