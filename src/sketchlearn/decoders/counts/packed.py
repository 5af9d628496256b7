r"""Reading packed counters: counts one after another, and a checksum over all.

A count is known modulo its base and predicted from the counts before it; of all counts
with the right remainder the most likely is taken. Where the checksum finds a mistake,
the next most likely ways of reading are tried, the likeliest first.
"""

from __future__ import annotations

import heapq
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log1p
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.base import Decoding
from sketchlearn.decoders.counts.gaussian import GaussianCounts
from sketchlearn.decoders.counts.packing import PackedCounters
from sketchlearn.errors import (
    ConvergenceWarning,
    FeatureMapMismatch,
    PrivacyError,
    RowRangeError,
    RowsError,
)
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["PackedReadingTuning", "decode_packed", "read_counters"]

Array = NDArray[np.float64]


@final
@dataclass(frozen=True)
class PackedReadingTuning:
    """Hand-chosen numbers of the reading."""

    tries: int = 256
    """Ways of reading that are tried, of some milliseconds each."""

    doubts: int = 16
    """Least certain counts of one way of reading that are doubted."""

    freedom: float = 5.0
    """Degrees of freedom of Student's law, by which doubts are ordered: rare items miss
    their predictions by more than Gaussian ones do."""


@final
@dataclass(frozen=True, eq=False)
class _Reading:
    """One way of reading: counts in order, surprises, and how certain each count is.

    ``costs`` are log likelihood ratios of the count taken and the next best one.
    """

    counts: NDArray[np.int64]
    surprises: Array
    costs: Array


def decode_packed(
    packed: PackedCounters,
    sketch: Sketch | PrivateSketch,
    *,
    tuning: PackedReadingTuning | None = None,
) -> Decoding[GaussianCounts]:
    """Counts of all items from a sketch made with ``TableFeatures(packed.table)``.

    Items that have a counter are exact (variance 0); the others are predicted from
    them. Where no reading fits the checksum, rows are unlike the training rows: then
    the likeliest reading is returned with the variances of the prior, ``converged`` is
    False, and a warning says so.

    Parameters
    ----------
    packed : PackedCounters
        The plan.
    sketch : Sketch
        Of at most ``packed.max_rows`` rows of zeros and ones.
    tuning : PackedReadingTuning, optional
        Hand-chosen numbers.

    Returns
    -------
    Decoding of GaussianCounts
        ``n_iter`` ways of reading were tried.
    """
    if isinstance(sketch, PrivateSketch):
        raise PrivacyError(
            "packed counters do not survive the noise of a release. Sketch with "
            "principal_table (or Count-Sketch) and decode with decode_linear."
        )
    phi = sketch.feature_map
    if not np.array_equal(phi.weights().get("table", ()), packed.table):
        raise FeatureMapMismatch(
            f"the sketch ({sketch.size} numbers of {phi.n_features} items) was not "
            f"made with the table of this plan ({packed.sketch_size} of "
            f"{packed.prior.n_items}). Sketch with TableFeatures(packed.table)."
        )
    totals = [value >> phi.frac_bits for value in sketch.total.to_ints()]
    return read_counters(packed, totals, sketch.count, tuning=tuning)


def read_counters(
    packed: PackedCounters,
    totals: Sequence[int],
    count: int,
    *,
    tuning: PackedReadingTuning | None = None,
) -> Decoding[GaussianCounts]:
    """Counts of all items from the totals of a sketch, or these modulo capacities.

    Examples
    --------
    >>> from sketchlearn.plans.packed_counters import pack_counters
    >>> rows = (np.random.default_rng(0).random((100, 50)) < 0.3).astype(int)
    >>> packed = pack_counters(rows, sketch_size=8, max_rows=20)
    >>> totals = (rows[:20] @ packed.table).sum(axis=0)
    >>> found = read_counters(packed, totals.tolist(), 20)
    >>> bool((found.params.mean == rows[:20].sum(axis=0)).all()), found.converged
    (True, True)
    """
    _require_count(packed, count)
    tuning = tuning or PackedReadingTuning()
    reading, n_tried, verified = _Reader(packed, totals, count, tuning).search()
    if not verified:
        warnings.warn(
            f"no reading of the {len(packed.order)} packed counters fits their "
            "checksum: the rows are unlike the training rows, and some counts are "
            "wrong. Plan with wrap=False, or from rows like these.",
            ConvergenceWarning,
            stacklevel=2,
        )
    mean, others = count * packed.prior.mean, packed.uncounted
    mean[others] += packed.predictors[1] @ reading.surprises
    mean[packed.order] = reading.counts
    open_ = packed.rest if verified else np.diag(packed.prior.covariance)
    variance = packed.prior.spread_of(count) * open_
    found = GaussianCounts(mean, variance, count)
    return Decoding(found, n_iter=n_tried, converged=verified)


@final
class _Reader:
    """Ways of reading the totals of one sketch."""

    def __init__(
        self,
        packed: PackedCounters,
        totals: Sequence[int],
        count: int,
        tuning: PackedReadingTuning,
    ) -> None:
        self.packed, self.count, self.tuning = packed, count, tuning
        self.rooms = [int(room) for room in packed.capacities]
        self.totals = [
            int(total) % room for total, room in zip(totals, self.rooms, strict=True)
        ]
        numbers, weights = packed.digits
        places = (numbers.tolist(), weights.tolist(), packed.bases.tolist())
        self.places = list(zip(*places, strict=True))
        self.expected = count * packed.prior.mean[packed.order]
        spread = tuning.freedom * packed.prior.spread_of(count)
        self.widths = spread * packed.misses

    def search(self) -> tuple[_Reading, int, bool]:
        """The likeliest reading that fits the checksum, else the likeliest of all."""
        found = first = self.read(None, ())
        waiting: list[tuple[float, int, tuple[int, ...], _Reading]] = []
        doubted: tuple[int, ...] = ()
        spent = 0.0
        for n_tried in range(self.tuning.tries):
            if self.fits(found):
                return found, n_tried + 1, True
            start = doubted[-1] + 1 if doubted else 0
            costs = found.costs[start:]
            for place in np.argsort(costs, kind="stable")[: self.tuning.doubts]:
                if costs[place] < inf:
                    more = (*doubted, start + int(place))
                    entry = (spent + float(costs[place]), n_tried, more, found)
                    heapq.heappush(waiting, entry)
            if not waiting:
                break
            spent, _, doubted, parent = heapq.heappop(waiting)
            found = self.read(parent, doubted)
        return first, n_tried + 1, False

    def read(self, parent: _Reading | None, doubted: tuple[int, ...]) -> _Reading:
        """Read on from the last doubted count of ``parent``, taking its next best."""
        size, start = len(self.places), doubted[-1] if doubted else 0
        counts, (surprises, costs) = np.zeros(size, np.int64), np.zeros((2, size))
        left = list(self.totals)
        if parent is not None:
            counts[:start] = parent.counts[:start]
            surprises[:start] = parent.surprises[:start]
            costs[:start] = parent.costs[:start]
            for i in range(start):
                left[self.places[i][0]] -= int(counts[i]) * self.places[i][1]
        gains = self.packed.predictors[0]
        for i in range(start, size):
            number, weight, base = self.places[i]
            guess = float(self.expected[i] + gains[i, :i] @ surprises[:i])
            digit = left[number] % self.rooms[number] // weight % base
            best, other = _nearest(guess, digit, base, self.count)
            if doubted and i == start and other is not None:
                best, other = other, None
            counts[i], surprises[i] = best, best - guess
            costs[i] = self.cost(i, best - guess, other, guess)
            left[number] -= best * weight
        return _Reading(counts, surprises, costs)

    def cost(self, i: int, miss: float, other: int | None, guess: float) -> float:
        """Log likelihood ratio, under Student's law, of a count and the next best."""
        if other is None:
            return inf
        width, power = float(self.widths[i]), (self.tuning.freedom + 1) / 2
        return power * (log1p((other - guess) ** 2 / width) - log1p(miss**2 / width))

    def fits(self, reading: _Reading) -> bool:
        """Whether all counts are possible, and agree with the checksum."""
        pairs = zip(reading.counts.tolist(), self.packed.checks.tolist(), strict=True)
        total = sum(count * weight for count, weight in pairs)
        possible = bool((reading.counts <= self.count).all())
        return possible and total % self.rooms[-1] == self.totals[-1]


def _nearest(guess: float, digit: int, base: int, count: int) -> tuple[int, int | None]:
    """The two counts from 0 to ``count`` with this remainder that are nearest."""
    most = max((count - digit) // base, 0)
    nearest = min(max(round((guess - digit) / base), 0), most)
    value = digit + base * nearest
    other = nearest + (1 if guess > value else -1)
    if not 0 <= other <= most:
        other = 2 * nearest - other
    return value, digit + base * other if 0 <= other <= most else None


def _require_count(packed: PackedCounters, count: int) -> None:
    if count > packed.max_rows:
        raise RowRangeError(
            f"the sketch holds {count} rows, and its counters were planned for "
            f"{packed.max_rows} (max_rows): some have run over. Plan for more rows, or "
            "decode parts of at most so many rows before they are merged."
        )
    if count < 1:
        raise RowsError("an empty sketch (0 rows) has no counts; add rows to it.")
