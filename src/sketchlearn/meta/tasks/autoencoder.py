"""Meta-learning sketch-conditional autoencoders, the paper's AE, +M and +MS.

Datasets become zeros and ones as in the streaming experiments, padded to the width of
the autoencoder. Without held-out datasets a share of the rows is held out.
"""

from __future__ import annotations

from collections.abc import Sequence

from sketchlearn.decoders.autoencoders.conditional import ConditionalAutoencoder
from sketchlearn.decoders.autoencoders.conditional_spec import ConditionalSpec
from sketchlearn.meta.binary import binary_rows
from sketchlearn.meta.conditional_autoencoder import TrainableAutoencoder
from sketchlearn.meta.config import RunConfig
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.meta.reconstruction import (
    BinaryTables,
    ReconstructionConfig,
    ReconstructionProblem,
)
from sketchlearn.meta.settings import require_settings
from sketchlearn.meta.tasks.base import Task
from sketchlearn.meta.tied_start import start_tied

__all__ = ["build_autoencoder"]


def build_autoencoder(
    config: RunConfig, training: Sequence[MetaDataset], held_out: Sequence[MetaDataset]
) -> tuple[TrainableAutoencoder, ReconstructionProblem]:
    """An autoencoder, not trained yet, and its problem.

    Beside the settings of the problem there is ``tied_start``: whether to start from
    projections (:mod:`sketchlearn.meta.tied_start`).
    """
    spec = ConditionalSpec.from_dict(config.model)
    given = dict(config.problem)
    tied = given.pop("tied_start", False)
    require_settings({"tied_start": tied}, None, "[problem]", tied_start=bool)
    settings = ReconstructionConfig.from_dict(given)
    width = spec.n_features
    tables, apart = (
        [binary_rows(data, n_columns=width) for data in part]
        for part in (training, held_out)
    )
    split = (
        BinaryTables(tables, apart, width)
        if apart
        else BinaryTables.split(tables, width, share=settings.held_out_rows)
    )
    start = ConditionalAutoencoder.initial(spec, config.train.seed)
    model = TrainableAutoencoder.thaw(start_tied(start) if tied else start)
    return model, ReconstructionProblem(split, settings)


TASK = Task("autoencoder", build_autoencoder)
