"""An autoencoder of one dataset, trained on its rows: what sketches are compared with.

It is the architecture of the conditional autoencoders without a condition (paper,
table autoencoder, first rows). It has seen the rows, many times; nothing else here has.
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from sketchlearn.decoders.autoencoders.adapted import AdaptedAutoencoder
from sketchlearn.decoders.autoencoders.conditional_spec import ConditionalSpec
from sketchlearn.errors import RowsError
from sketchlearn.meta.conditional_autoencoder import TrainableAutoencoder
from sketchlearn.meta.config import TrainConfig
from sketchlearn.meta.reconstruction import (
    BinaryTables,
    ReconstructionConfig,
    ReconstructionProblem,
)
from sketchlearn.meta.trainer import train

__all__ = ["train_specific"]


def train_specific(
    rows: ArrayLike,
    n_components: int,
    config: TrainConfig,
    *,
    depth: int = 1,
    width: int = 384,
    batch: int = 256,
    held_out_rows: float = 0.1,
    seed: int | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> AdaptedAutoencoder:
    """Train an autoencoder on the rows of a table.

    Parameters
    ----------
    rows : array of 0 and 1, shape (n, n_features)
        Training rows; their marginals also set the threshold of a one.
    n_components : int
        Numbers of a code, 50 in the paper.
    config : TrainConfig
        How long and how fast; with ``patience`` training ends where rows held apart
        are no longer reconstructed better.
    depth, width : int
        Residual blocks and hidden units, 5 and 4096 in the paper.
    batch : int
        Rows of a step, 1024 in the paper.
    held_out_rows : float
        Share of the rows that is held apart.
    seed : int, optional
        Of the first weights, the batches and the rows held apart, in the place of that
        of ``config``.
    folder : path, optional
        Keeps checkpoint and log, as for :func:`~sketchlearn.meta.trainer.train`.

    Returns
    -------
    AdaptedAutoencoder
        Codes of rows and back.

    Examples
    --------
    >>> rows = np.eye(6)[np.arange(60) % 2]
    >>> settings = TrainConfig(steps=40, learning_rate=0.01, validate_every=10)
    >>> trained = train_specific(rows, 1, settings, width=16, batch=32)
    >>> bool((trained.reconstruct(rows) == rows).all())
    True
    """
    table = np.asarray(rows)
    if table.ndim != 2 or table.size == 0 or not np.isin(table, (0, 1)).all():
        raise RowsError(
            f"rows must be a table of zeros and ones; got shape {table.shape} of "
            f"{table.dtype}."
        )
    settings = config if seed is None else replace(config, seed=seed)
    spec = ConditionalSpec(table.shape[1], n_components, depth=depth, width=width)
    tables = BinaryTables.split(
        [table.astype(np.uint8)],
        spec.n_features,
        share=held_out_rows,
        seed=settings.seed,
    )
    drawn = ReconstructionConfig(
        randomize=False,
        n_rows=batch,
        support=(1,),
        validation_episodes=max(1, round(len(tables.held_out[0]) / batch)),
    )
    model = TrainableAutoencoder(spec, seed=settings.seed)
    train(model, ReconstructionProblem(tables, drawn), settings, folder=folder)
    return model.freeze().adapted(table.mean(axis=0))
