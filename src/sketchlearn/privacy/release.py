r"""Privacy: an exact sketch becomes a noisy one, once, exactly as private as it says.

:func:`release` adds discrete Gaussian noise to the integer total of a sketch whose
rows are bounded in norm. The promise is calibrated with the analytic Gaussian, paid
for in a ledger before the noise is drawn, and written into the result's
:class:`PrivacyStatement`. A :class:`PrivateSketch` carries nothing exact; decoding it,
however often, costs nothing more.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, log2
from typing import Any, final

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.errors import PrivacyError, PrivacyWarning
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.kinds import KINDS
from sketchlearn.privacy.ledger import Charge, Ledger
from sketchlearn.privacy.mechanisms import gaussian_mu, is_number, require_budget
from sketchlearn.privacy.noise import RandomBytes, discrete_gaussian, discrete_laplace
from sketchlearn.privacy.released import PrivateSketch, merge_disjoint
from sketchlearn.privacy.statement import (
    MECHANISMS,
    CountMode,
    Neighbours,
    PrivacyStatement,
    count_weight,
    laplace_std,
    require_modes,
    sensitivity_steps,
)
from sketchlearn.sketching.lineage import runs_of
from sketchlearn.sketching.sketch import Sketch, require_same_columns
from sketchlearn.version import __version__

__all__ = ["PrivateSketch", "merge_disjoint", "release", "release_by_label"]
__public__ = ["release", "release_by_label"]

_MARGIN = Fraction(1) + Fraction(1, 2**30)


def release(
    sketch: Sketch,
    *,
    epsilon: float,
    delta: float,
    ledger: Ledger | str | os.PathLike[str],
    neighbours: Neighbours = "add_remove",
    count: CountMode = "joint",
    rows_per_unit: int = 1,
    count_share: float = 0.1,
) -> PrivateSketch:
    r"""Add noise, once, so that the result is (ε, δ)-differentially private.

    The ledger is charged, on disk, before any noise is drawn; on refusal nothing is
    released or spent. Everything decoded from the result is private at no further
    cost.

    Parameters
    ----------
    sketch : Sketch
        Of a map with bounded norm (see :func:`sketchlearn.clipped`), pooled by mean,
        planned without looking at the data.
    epsilon, delta : float
        The promise; δ should be far below one over the number of rows.
    ledger : Ledger or path
        Where the price is recorded: ``Ledger(path, epsilon=..., delta=...)``, made
        once for each dataset, or the path of an existing one.
    neighbours : {"add_remove", "replace"}
        Which datasets must be hard to tell apart: those that differ by one more
        row, or those where one row has other values (the number of rows is public).
    count : {"joint", "laplace", "public"}
        The number of rows is one more coordinate of the Gaussian (default), gets
        Laplace noise as in the paper, or is public (``neighbours="replace"`` only).
    rows_per_unit : int
        Rows one person may have contributed; you vouch for it.
    count_share : float
        Share of ε spent on the count when ``count="laplace"``.

    Returns
    -------
    PrivateSketch

    References
    ----------
    Paper, §3 (Private Sketching) and its appendix.

    Examples
    --------
    >>> import numpy as np, sketchlearn as sl
    >>> phi = sl.clipped(sl.FourierFeatures(2, 16), norm_bound=2.0)
    >>> exact = sl.sketch_rows(np.zeros((10_000, 2)), phi)
    >>> book = sl.Ledger.ephemeral(epsilon=1.0, delta=1e-6)
    >>> private = sl.release(exact, epsilon=1.0, delta=1e-6, ledger=book)
    >>> bool(abs(private.mean - exact.mean).max() < 0.1)
    True
    """
    plan = plan_release(
        sketch,
        epsilon=epsilon,
        delta=delta,
        neighbours=neighbours,
        count=count,
        rows_per_unit=rows_per_unit,
        count_share=count_share,
    )
    _open_ledger(ledger).charge(plan.charge)
    return plan.draw(os.urandom)[0]


def release_by_label(
    sketches: Mapping[Any, Sketch],
    *,
    labels: Iterable[Any],
    epsilon: float,
    delta: float,
    ledger: Ledger | str | os.PathLike[str],
    rows_per_unit: int = 1,
) -> dict[Any, PrivateSketch]:
    """Release one sketch for each class, for the price of one.

    A row has one label, so adding or removing it touches one class only.

    Parameters
    ----------
    sketches : mapping of label to Sketch
        Of one feature map.
    labels : iterable
        The *public* list of labels. Every one of them gets a release, also if no row
        has it (its absence would tell); a sketch of any other label is refused.
    epsilon, delta, ledger, rows_per_unit
        As for :func:`release`.

    Returns
    -------
    dict of label to PrivateSketch
    """
    public = _public_labels(sketches, labels)
    some = next(iter(sketches.values()))
    if not all(isinstance(part, Sketch) for part in sketches.values()):
        raise PrivacyError("release_by_label takes exact sketches, one for each label.")
    for part in sketches.values():
        some.features.require_same(part.features, "release together")
        if part.columns != some.columns:
            require_same_columns(some.columns, part.columns, "release together")
            raise PrivacyError(
                "some of these sketches have column names and others not, which would "
                "tell the labels that have rows. Sketch all of them alike."
            )
    runs = [run for part in sketches.values() for run in runs_of(part.lineage)]
    if len(set(runs)) < len(runs):
        raise PrivacyError(
            "the same rows are in the sketches of several labels; a row has one label. "
            "Nothing was released. If they are different rows, say so with "
            "sketch.with_new_lineage()."
        )
    # A label without rows must look like any other: planned, drawn, and named anew.
    at_hand = [part.source_map for part in sketches.values() if part.source_map]
    source = at_hand[0] if at_hand else None
    empty = replace(some, total=Int128Array.zeros(some.size), count=0)
    plans = {
        label: plan_release(
            replace(sketches.get(label, empty), source_map=source),
            epsilon=epsilon,
            delta=delta,
            rows_per_unit=rows_per_unit,
        )
        for label in public
    }
    charge = replace(plans[public[0]].charge, lineage=tuple(sorted(runs)))
    _open_ledger(ledger).charge(charge)
    return {label: plan.draw(os.urandom)[0] for label, plan in plans.items()}


@final
@dataclass(frozen=True)
class PlannedRelease:
    """A release that was checked and calibrated, and not yet paid for or drawn.

    The one door to noise: whatever is released was drawn by :meth:`draw`. Not public:
    drawing is not paying, and what is drawn from other bytes than the operating
    system's is marked as a test double.

    Parameters
    ----------
    sketch : Sketch
        What is to be released.
    statement : PrivacyStatement
        What will be promised, but for the identifier of the release.
    release_id : str
        128 random bits in hexadecimal: what the ledger and the release share.
    """

    sketch: Sketch
    statement: PrivacyStatement
    release_id: str

    @property
    def charge(self) -> Charge:
        """The price. It names the runs of the sketch; the release does not."""
        statement = self.statement
        return Charge(
            release_id=self.release_id,
            mu2=statement.mu2,
            pure_epsilon=statement.count_epsilon,
            feature_map=statement.feature_map,
            lineage=tuple(sorted(runs_of(self.sketch.lineage))),
            neighbours=statement.neighbours,
            rows_per_unit=statement.rows_per_unit,
            count_mode=statement.count_mode,
            epsilon=statement.epsilon,
            delta=statement.delta,
        )

    def draw(self, random_bytes: RandomBytes, n: int = 1) -> list[PrivateSketch]:
        """Draw the noise, n times and independently: a release takes one.

        Who calls this has paid for it. Only an audit, of rows that are no secret,
        draws more than once.
        """
        exact, statement = self.sketch.total.to_ints(), self.statement
        if statement.count_mode == "joint":
            exact.append(self.sketch.count * statement.count_weight)
        m = len(exact)
        noise = discrete_gaussian(statement.sigma_int, n * m, random_bytes=random_bytes)
        seeded = statement.seeded or random_bytes is not os.urandom
        promise = replace(statement, lineage=(self.release_id,), seeded=seeded)
        drawn = []
        for start in range(0, n * m, m):
            pairs = zip(exact, noise[start : start + m], strict=True)
            total = Int128Array.from_ints(value + shift for value, shift in pairs)
            count = self._draw_count(random_bytes)
            drawn.append(
                PrivateSketch(
                    total=total,
                    features=self.sketch.features,
                    statement=promise,
                    noisy_count=count,
                    source_map=self.sketch.source_map,
                    columns=self.sketch.columns,
                )
            )
        return drawn

    def _draw_count(self, random_bytes: RandomBytes) -> int | None:
        """The number of rows, where it is not one more coordinate."""
        mode, count = self.statement.count_mode, self.sketch.count
        if mode == "joint":
            return None
        if mode == "public":
            return count
        rate = Fraction(self.statement.count_epsilon) / self.statement.rows_per_unit
        return count + discrete_laplace(
            rate.numerator, rate.denominator, random_bytes=random_bytes
        )


def plan_release(
    sketch: Sketch,
    *,
    epsilon: float,
    delta: float,
    neighbours: Neighbours = "add_remove",
    count: CountMode = "joint",
    rows_per_unit: int = 1,
    count_share: float = 0.1,
) -> PlannedRelease:
    """Check a release and compute its noise, without drawing or spending any."""
    require_budget(epsilon, delta)
    require_modes(neighbours, count, rows_per_unit)
    # Plain Python numbers: NumPy's would overflow or round in what follows.
    epsilon, delta, rows_per_unit = float(epsilon), float(delta), int(rows_per_unit)
    feature_map = _require_releasable(sketch)
    spec = feature_map.spec
    count_epsilon = _count_epsilon(epsilon, count_share) if count == "laplace" else 0.0
    sensitivity = sensitivity_steps(spec, neighbours, count, rows_per_unit)
    shrink = 1 - 2.0**-30
    mu = gaussian_mu((epsilon - count_epsilon) * shrink, delta * shrink)
    sigma = ceil(Fraction(sensitivity) / Fraction(mu) * _MARGIN)
    # The odds of discrete noise are within exp(67 / sigma**2) of those of rounded
    # Gaussian noise, for each number: the margin of epsilon, and the ledger, cover it.
    eta = Fraction(67 * (spec.sketch_size + 1), sigma**2)
    if eta * 2**31 > epsilon or eta * 2**32 > Fraction(sensitivity, sigma):
        raise PrivacyError("the lattice is too coarse for this promise.")
    room = 2**127 - 64 * sigma - 1
    counted = sketch.count * count_weight(spec)
    if counted > room or not sketch.total.within(-room, room):
        raise PrivacyError(
            "the noise of this promise does not fit in 128 bits beside the total. "
            "Nothing was released. Use a larger epsilon, fewer rows_per_unit, or parts "
            "of a map whose norm bounds are less different."
        )
    _warn_of_large_delta(delta, sketch.count)
    statement = PrivacyStatement(
        epsilon=float(epsilon),
        delta=float(delta),
        mu2=float(Fraction(sensitivity, sigma) ** 2) * (1 + 2.0**-50),
        neighbours=neighbours,
        unit="record" if rows_per_unit == 1 else "group",
        rows_per_unit=int(rows_per_unit),
        mechanism=MECHANISMS[count == "laplace"],
        sensitivity=float(Fraction(sensitivity) / Fraction(2) ** spec.frac_bits),
        sigma_int=sigma,
        frac_bits=spec.frac_bits,
        count_mode=count,
        count_weight=count_weight(spec) if count == "joint" else 0,
        count_epsilon=count_epsilon,
        count_std=laplace_std(count_epsilon, rows_per_unit),
        feature_map=spec.fingerprint,
        lineage=None,
        library_version=__version__,
    )
    verified = replace(sketch, source_map=feature_map)
    return PlannedRelease(verified, statement, os.urandom(16).hex())


def _public_labels(sketches: Mapping[Any, Sketch], labels: Iterable[Any]) -> list[Any]:
    """The declared labels, after checking that no sketch has another."""
    public = list(labels)
    try:
        repeated = len(set(public)) < len(public)
    except TypeError as error:
        raise PrivacyError(f"labels must be hashable; {error}.") from error
    if not sketches or not public or repeated:
        raise PrivacyError("labels must be a public list of different labels.")
    stray = [label for label in sketches if label not in public]
    if stray:
        raise PrivacyError(
            f"{len(stray)} sketches have a label that is not in the public list; "
            "nothing was released. Declare every possible label beforehand."
        )
    return public


def _require_releasable(sketch: Sketch) -> AbstractFeatureMap:
    """The verified map of a sketch that may be released."""
    if isinstance(sketch, PrivateSketch):
        raise PrivacyError("this sketch is released already; decode it as it is.")
    if not isinstance(sketch, Sketch):
        raise PrivacyError(
            f"release takes a sketch, as sketch_rows makes it; got a "
            f"{type(sketch).__name__}."
        )
    spec = sketch.features
    if sketch.pooling != "mean":
        raise PrivacyError(
            f"only sketches pooled by mean are released; this one is pooled by "
            f"{sketch.pooling!r}. Sketch the rows with pooling='mean'."
        )
    if spec.norm_bound is None:
        raise PrivacyError(
            "this sketch has no per-row bound (clip=None). Build it with "
            "clipped(feature_map, norm_bound=S), S fixed before looking at this data; "
            "a bound cannot be added afterwards."
        )
    if spec.version == 1:
        raise PrivacyError(
            "this sketch is of version 1, whose floating-point features could exceed "
            "their norm bound by rounding. Sketch the rows again and release that."
        )
    feature_map = _rebuilt_map(sketch)
    if feature_map.origin != "declared":
        raise PrivacyError(
            "the map of this sketch was planned from rows (scales or landmarks read "
            "from data); that reveals them. Declare bounds, or build the map from "
            "public data."
        )
    if not replace(sketch, source_map=feature_map).is_possible:
        raise PrivacyError(
            f"{sketch.count} rows within the norm bound cannot have this total: it was "
            "forged or made with a bug. Nothing was released; sketch the rows again."
        )
    if sketch.count and not sketch.lineage:
        raise PrivacyError(
            "the passes over rows inside this sketch are not known (merged from too "
            "many to list, or made by hand), so that rows may have been added twice. "
            "If each was added once, say so: release(sketch.with_new_lineage(), ...)."
        )
    return feature_map


def _rebuilt_map(sketch: Sketch) -> AbstractFeatureMap:
    """The map of a sketch; a header is believed only if the map says the same."""
    spec, at_hand = sketch.features, sketch.source_map
    if at_hand is None and not spec.text:
        raise PrivacyError(
            "where the constants of this map come from is not known: attach the map "
            "with sketch.with_map(feature_map) before releasing."
        )
    parts = () if at_hand is None else at_hand.parts()
    foreign = [part for part in parts if not _is_ours(part.feature_map)]
    unclipped = any(not part.clips for part in foreign)
    if unclipped or (at_hand is not None and not _is_ours(at_hand)):
        raise PrivacyError(
            "the norm bound of a feature map of your own is your word only. Clip it: "
            "clipped(feature_map, norm_bound=S), and sketch the rows with that."
        )
    stored = at_hand is not None and bool(at_hand.stored_weights)
    if at_hand is None or (spec.text and not stored and not foreign):
        at_hand = spec.build()
    spec.require_equal(at_hand.spec)
    return at_hand


def _is_ours(feature_map: AbstractFeatureMap) -> bool:
    """Whether the library computes these features, and so knows their bounds."""
    kind = KINDS.get(feature_map.kind)
    cls = type(feature_map)
    return kind is not None and kind.path == f"{cls.__module__}:{cls.__qualname__}"


def _count_epsilon(epsilon: float, share: float) -> float:
    """What a Laplace count spends of ε; the sum must keep enough for itself."""
    if not is_number(share) or not 0 < share < 1:
        raise PrivacyError(f"count_share must be in (0, 1); got {share!r}.")
    spent = epsilon * float(share)
    if min(spent, epsilon - spent) < 1e-6:
        raise PrivacyError(
            f"count_share={share!r} leaves less than 1e-6 of epsilon={epsilon:g} to "
            "the count or to the sum: choose one nearer to 0.1."
        )
    return spent


def _warn_of_large_delta(delta: float, count: int) -> None:
    # The exact count must not decide whether a warning is shown: a coarse power of
    # two of it is what the data holder, who alone sees this, gets to know.
    coarse = 2.0 ** ceil(log2(max(count, 1)))
    if delta > 1e-4 or delta > 1 / (10 * coarse):
        warnings.warn(
            f"delta={delta:g} is the chance that somebody is fully exposed; it should "
            "be far below one over the number of rows.",
            PrivacyWarning,
            stacklevel=4,
        )


def _open_ledger(path: Any) -> Ledger:
    if isinstance(path, Ledger):
        return path
    if path is None or not isinstance(path, str | os.PathLike):
        raise PrivacyError(
            "ledger must be a Ledger or the path of one; ask for "
            "Ledger.ephemeral(epsilon=..., delta=...) if it may be forgotten."
        )
    return Ledger.open(path)
