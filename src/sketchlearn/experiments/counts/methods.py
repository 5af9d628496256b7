r"""Every way to get frequencies, or who was there, from m numbers, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import nnls

from sketchlearn.decoders.counts.classical import (
    decode_bloom,
    decode_count_min,
    decode_count_sketch,
)
from sketchlearn.errors import ConfigError
from sketchlearn.experiments.counts.answers import (
    Answers,
    CountMethod,
    Decode,
    Table,
    constant_answers,
    hashed_answers,
)
from sketchlearn.experiments.counts.informed_methods import (
    linear_answers,
    packed_answers,
)
from sketchlearn.experiments.counts.joint_methods import (
    bloom_in_as_many_bits,
    joint_answers,
    joint_in_as_many_bytes,
)
from sketchlearn.experiments.counts.networks import (
    NO_NETWORKS,
    TrainedNetworks,
    network_answers,
)
from sketchlearn.experiments.counts.sets import Question

__all__ = [
    "COUNT_METHODS",
    "FIXED_DEPTH",
    "LEARNING",
    "OUR_COUNTS",
    "SEARCHED",
    "count_method",
    "fixed_table",
    "methods_of",
    "why_missing",
]

FIXED_DEPTH = 5
"""Tables of the paper's fixed sketches: 5 of width 20 at 100 numbers."""

OUR_COUNTS = "joint"


def _count_min(
    columns: sp.csr_array, sums: NDArray[np.int32], n_rows: int, width: int
) -> NDArray[np.float64]:
    return decode_count_min(columns, sums, width=width).estimates / n_rows


def _count_sketch(
    columns: sp.csr_array,
    sums: NDArray[np.int32],
    n_rows: int,
    width: int,
    *,
    combine: Any,
) -> NDArray[np.float64]:
    found = decode_count_sketch(columns, sums, width=width, combine=combine)
    return found.estimates / n_rows


def _bloom(
    columns: sp.csr_array, sums: NDArray[np.int32], n_rows: int, width: int
) -> NDArray[np.float64]:
    return decode_bloom(columns, sums, width=width).present.astype(np.float64)


def _nnls(
    columns: sp.csr_array, sums: NDArray[np.int32], n_rows: int, width: int
) -> NDArray[np.float64]:
    matrix = columns.T.toarray().astype(np.float64)
    return np.stack([nnls(matrix, z / n_rows)[0] for z in sums])


_MEAN, _MEDIAN = (partial(_count_sketch, combine=how) for how in ("mean", "median"))
_COUNTS: tuple[Question, ...] = ("frequency",)
_BOTH: tuple[Question, ...] = ("frequency", "membership")
_SIGHT: tuple[Question, ...] = ("membership",)


@final
@dataclass(frozen=True, eq=False)
class _Recipe:
    """How a method works."""

    label: str
    asks: tuple[Question, ...]
    kind: str = ""
    """Of its hashed map, if it has one."""

    decode: Decode | None = None
    """From that map."""

    is_tuned: bool = False
    """Whether width and depth come from a search."""

    answers: Callable[..., Answers] | None = None
    """Of methods that choose their own map, from a batch, a seed and ``size``."""

    family: str = ""
    """Of the paper's networks, for methods that are one."""

    learns: bool = False
    """Whether it needs training rows of the dataset."""

    is_slow: bool = False


_RECIPES: Mapping[str, _Recipe] = {
    "zeros": _Recipe("all 0s", _BOTH),
    "mean": _Recipe("the mean for all", _BOTH),
    "cm": _Recipe("Count-Min, optimal", _COUNTS, "count-min", _count_min, True),
    "cm-fixed": _Recipe("Count-Min, W = m/5, D = 5", _COUNTS, "count-min", _count_min),
    "cs": _Recipe("Count-Sketch, mean, optimal", _COUNTS, "count-sketch", _MEAN, True),
    "cs-fixed": _Recipe(
        "Count-Sketch, mean, W = m/5, D = 5", _COUNTS, "count-sketch", _MEAN
    ),
    "cs-median": _Recipe(
        "Count-Sketch, median, optimal", _COUNTS, "count-sketch", _MEDIAN, True
    ),
    "cs-median-fixed": _Recipe(
        "Count-Sketch, median, W = m/5, D = 5", _COUNTS, "count-sketch", _MEDIAN
    ),
    "bloom": _Recipe("Bloom filter, optimal", _SIGHT, "bloom", _bloom, True),
    "bloom-fixed": _Recipe("Bloom filter, W = m/5, D = 5", _SIGHT, "bloom", _bloom),
    "nnls": _Recipe(
        "non-negative least squares", _COUNTS, "count-sketch", _nnls, is_slow=True
    ),
    "sq-nonlinear": _Recipe("SQNet, non-linear", _BOTH, family="sq-nonlinear"),
    "sq-linear": _Recipe("SQNet, linear", _BOTH, family="sq-linear"),
    "sq-ternary": _Recipe("SQNet, ternary", _BOTH, family="sq-ternary"),
    "sq-binary": _Recipe("SQNet, binary", _BOTH, family="sq-binary"),
    "sq-parallel": _Recipe("SQNet, parallel windows", _BOTH, family="sq-parallel"),
    "sq-ternary-parallel": _Recipe(
        "SQNet, ternary windows", _BOTH, family="sq-ternary-parallel"
    ),
    "rfq": _Recipe("RFQNet", _BOTH, family="rfq"),
    "sq-tuned": _Recipe("SQNet, linear (f)", _BOTH, family="sq-tuned", learns=True),
    "linear": _Recipe(
        "linear MMSE (f)", _BOTH, answers=linear_answers, is_slow=True, learns=True
    ),
    "packed": _Recipe(
        "packed counters (f), ours",
        _BOTH,
        answers=packed_answers,
        is_slow=True,
        learns=True,
    ),
    "bloom-bits": _Recipe(
        "Bloom filter, bits of joint decoding", _SIGHT, answers=bloom_in_as_many_bits
    ),
    OUR_COUNTS: _Recipe(
        "joint decoding (ours)", _BOTH, answers=joint_answers, is_slow=True
    ),
    "joint-bytes": _Recipe(
        "joint decoding, bytes of m floats",
        _BOTH,
        answers=joint_in_as_many_bytes,
        is_slow=True,
    ),
}

COUNT_METHODS: dict[str, str] = {name: one.label for name, one in _RECIPES.items()}
"""Labels of all methods by name."""

LEARNING = tuple(name for name, one in _RECIPES.items() if one.learns)
"""Methods that need training rows of a dataset."""

SEARCHED = tuple(name for name, one in _RECIPES.items() if one.is_tuned)
"""Methods whose table comes from a search."""


def methods_of(question: Question) -> tuple[str, ...]:
    """Names of the methods that answer a question."""
    return tuple(name for name, one in _RECIPES.items() if question in one.asks)


def fixed_table(size: int) -> Table:
    """Five tables in ``size`` numbers.

    Examples
    --------
    >>> fixed_table(100)
    Table(width=20, depth=5)
    """
    return Table(size // FIXED_DEPTH, FIXED_DEPTH)


def why_missing(
    name: str, size: int, question: Question, networks: TrainedNetworks
) -> str | None:
    """Why a method cannot answer with sketches of a size, if it cannot."""
    family = _RECIPES[name].family
    if not family or networks.best(question, size, family=family) is not None:
        return None
    if family == "sq-tuned":
        return "it was not fine-tuned (--fine-tune SECONDS, --weights FOLDER)"
    return f"no weights of {size} numbers (--weights FOLDER)"


def count_method(
    name: str,
    table: Table,
    question: Question,
    networks: TrainedNetworks = NO_NETWORKS,
) -> CountMethod:
    """A method by its name, one of :data:`COUNT_METHODS`.

    Parameters
    ----------
    name : str
        What the command line calls it.
    table : Table
        Of methods of hashed tables; others choose their own, of the same size.
    question : {"frequency", "membership"}
        What is asked.
    networks : TrainedNetworks
        Where methods that are networks are taken from.

    Examples
    --------
    >>> from sketchlearn.experiments.counts.sets import SetBatch
    >>> batch = SetBatch(np.array([[4, 0, 2]]), 4)
    >>> method = count_method("cm", Table(50, 3), "frequency")
    >>> method.answer(batch, 0).values
    array([[1. , 0. , 0.5]])
    """
    recipe = _RECIPES[name]
    answer: Callable[..., Answers]
    if recipe.family:
        network = networks.best(question, table.size, family=recipe.family)
        if network is None:
            raise ConfigError(
                f"{name}: {why_missing(name, table.size, question, networks)}"
            )
        answer = partial(network_answers, network=network, question=question)
        return CountMethod(name, answer, not network.reads_means)
    if recipe.answers is not None:
        answer = partial(recipe.answers, size=table.size, question=question)
    elif recipe.decode is not None:
        kind, decode = recipe.kind, recipe.decode
        answer = partial(hashed_answers, kind=kind, decode=decode, table=table)
    else:
        answer = partial(constant_answers, is_mean=name == "mean", question=question)
    return CountMethod(name, answer, recipe.is_slow)
