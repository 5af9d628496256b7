r"""Ours: all items decoded together, from few tables, the first without signs.

Sets that are narrower than the sketch have a counter for each item, and are exact.
"""

from __future__ import annotations

import numpy as np

from sketchlearn.decoders.counts.classical import decode_bloom
from sketchlearn.decoders.counts.joint import best_depth, decode_counts
from sketchlearn.experiments.counts.answers import (
    Answers,
    Table,
    bits_of,
    exact_answers,
    hashed_sums,
)
from sketchlearn.experiments.counts.sets import Question, SetBatch

__all__ = ["bloom_in_as_many_bits", "joint_answers", "joint_in_as_many_bytes"]

_FLOAT_BYTES = 4
"""Of the numbers of a network's sketch."""

_DEEPEST_BLOOM = 6


def joint_answers(
    batch: SetBatch, seed: int, *, size: int, question: Question
) -> Answers:
    """Decode each set from ``size`` numbers."""
    if batch.n_items <= size:
        return exact_answers(batch, question)
    return _decoded(batch, seed, _joint_table(size), question)


def joint_in_as_many_bytes(
    batch: SetBatch, seed: int, *, size: int, question: Question
) -> Answers:
    """Decode each set from as many narrow counters as ``size`` floats have room for.

    A counter has as many bits as the largest sum of the batch needs.
    """
    room = 8 * _FLOAT_BYTES * size
    if batch.n_items * bits_of(batch.counts) <= room:
        return exact_answers(batch, question)
    for bits in range(2, 33):
        table = _joint_table(room // bits)
        _, sums = hashed_sums(batch, seed, kind="joint-counts", table=table)
        if bits_of(sums) <= bits:
            break
    return _decoded(batch, seed, table, question)


def bloom_in_as_many_bits(
    batch: SetBatch, seed: int, *, size: int, question: Question
) -> Answers:
    """A Bloom filter of the bits of :func:`joint_answers`, at its best depth here."""
    _, sums = hashed_sums(batch, seed, kind="joint-counts", table=_joint_table(size))
    room = bits_of(sums) * size
    if batch.n_items <= room:
        return exact_answers(batch, question)
    found = []
    for depth in range(1, _DEEPEST_BLOOM + 1):
        table = Table(room // depth, depth)
        columns, cells = hashed_sums(batch, seed, kind="bloom", table=table)
        present = decode_bloom(columns, cells, width=table.width).present
        found.append(Answers(present.astype(np.float64), table.size, 1))
    return min(found, key=lambda one: float((one.values != batch.presence).mean()))


def _joint_table(size: int) -> Table:
    depth = best_depth(size)
    return Table(size // depth, depth)


def _decoded(batch: SetBatch, seed: int, table: Table, question: Question) -> Answers:
    columns, sums = hashed_sums(batch, seed, kind="joint-counts", table=table)
    answers = np.empty(batch.counts.shape)
    for number, one in enumerate(sums / batch.n_rows):
        total = one[: table.width].sum()
        found = decode_counts(columns, one, batch.n_rows, total=total).params
        counted = question == "frequency"
        answers[number] = found.mean / batch.n_rows if counted else found.presence
    return Answers(answers.clip(0.0, 1.0), table.size, bits_of(sums))
