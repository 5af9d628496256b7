"""Methods that learn from training rows of the same dataset, in closed form.

They are the rivals of the paper's fine-tuning, and need no training of networks.
"""

from __future__ import annotations

import warnings
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.counts.gaussian import GaussianCounts
from sketchlearn.decoders.counts.item_prior import ItemPrior
from sketchlearn.decoders.counts.linear import decode_linear, principal_table
from sketchlearn.decoders.counts.packed import read_counters
from sketchlearn.errors import ConfigError, ConvergenceWarning
from sketchlearn.experiments.counts.answers import Answers, bits_of, exact_answers
from sketchlearn.experiments.counts.sets import Question, SetBatch, TrainingRows
from sketchlearn.plans.packed_counters import pack_counters

__all__ = ["linear_answers", "packed_answers"]

_NUMBER_BITS = 32
"""Of a number of packed counters."""


def linear_answers(
    batch: SetBatch, seed: int, *, size: int, question: Question
) -> Answers:
    """The best linear estimate from ``size`` principal directions."""
    if batch.n_items <= size:
        return exact_answers(batch, question)
    prior = _prior(_training(batch))
    table = principal_table(prior, size)
    sums = batch.counts @ table
    found = [
        decode_linear(prior, table, one / batch.n_rows, batch.n_rows).params
        for one in sums
    ]
    return Answers(_values(found, batch, question), size, bits_of(sums))


def packed_answers(
    batch: SetBatch, seed: int, *, size: int, question: Question
) -> Answers:
    """Several counters in each number of 32 bits, as many as training rows allow."""
    if batch.n_items <= size:
        return exact_answers(batch, question)
    rows = _training(batch).rows
    packed = pack_counters(rows, sketch_size=size, max_rows=batch.n_rows)
    found = []
    with warnings.catch_warnings():
        # Where counters cannot be told apart is part of the error measured here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for one in batch.counts @ packed.table:
            found.append(read_counters(packed, one.tolist(), batch.n_rows).params)
    return Answers(_values(found, batch, question), size, _NUMBER_BITS)


def _values(
    found: list[GaussianCounts], batch: SetBatch, question: Question
) -> NDArray[np.float64]:
    counted = question == "frequency"
    values = [one.mean / batch.n_rows if counted else one.presence for one in found]
    return np.stack(values).clip(0.0, 1.0)


def _training(batch: SetBatch) -> TrainingRows:
    if batch.training is None:
        raise ConfigError("these sets have no training rows to learn from.")
    return batch.training


@lru_cache(maxsize=1)
def _prior(training: TrainingRows) -> ItemPrior:
    """Of the training rows of the dataset at hand, once for all sizes of sets."""
    return ItemPrior.from_rows(training.rows)
