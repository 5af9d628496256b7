"""Fine-tuning a net of item counts on the rows of one dataset: the paper's (f).

The net is trained on from where it is, on sets of rows drawn from training rows of the
dataset, and the weights are kept that do best on rows held apart.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.meta.config import TrainConfig
from sketchlearn.meta.count_sets import CountProblem, Goal, RowSets
from sketchlearn.meta.sqnet import TrainableSQNet
from sketchlearn.meta.trainer import TrainResult, train
from sketchlearn.sqnet import SQNet

__all__ = ["FineTuned", "fine_tune"]


@final
@dataclass(frozen=True, eq=False)
class FineTuned:
    """A net trained on, and how that went.

    Its first validation is that of the net as it was given: if nothing was better,
    the net is the same.
    """

    net: SQNet
    result: TrainResult


def fine_tune(
    net: SQNet,
    rows: NDArray[Any],
    goal: Goal,
    config: TrainConfig,
    *,
    set_rows: tuple[int, int] = (1, 100),
    batch: int = 250,
    folder: str | os.PathLike[str] | None = None,
) -> FineTuned:
    """Train a net on, for sets of rows like those of a table.

    Parameters
    ----------
    net : SQNet
        Where to start, with an output for each item.
    rows : array of 0 and 1, shape (n, at most n_features)
        Training rows; a fifth of them is held apart to judge by. Narrower tables are
        padded with items that never occur.
    goal : {"frequency", "membership"}
        What the net predicts.
    config : TrainConfig
        How long and how fast; its seed also chooses the rows held apart.
    set_rows : pair of int
        Fewest and most rows of a set.
    batch : int
        Sets of a batch.
    folder : path, optional
        Keeps checkpoint and log, as for :func:`~sketchlearn.meta.trainer.train`.

    Examples
    --------
    >>> from sketchlearn import SQNetSpec
    >>> net = SQNet.initial(SQNetSpec(5, 3, decoder={"head": "sigmoid"}))
    >>> rows = np.eye(5)[np.arange(40) % 2]
    >>> settings = TrainConfig(steps=20, learning_rate=0.05, validate_every=10)
    >>> tuned = fine_tune(net, rows, "frequency", settings, set_rows=(1, 8))
    >>> history = tuned.result.history
    >>> bool(tuned.result.best_score < history[0]["score"])
    True
    """
    model = TrainableSQNet.thaw(net)
    sets = RowSets(
        np.asarray(rows),
        net.spec.n_features,
        set_rows=set_rows,
        batch=batch,
        seed=config.seed,
    )
    problem = CountProblem(goal, sets, with_rows=not model.reads_means)
    result = train(model, problem, config, folder=folder)
    return FineTuned(model.freeze(), result)
