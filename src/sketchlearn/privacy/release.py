r"""Privacy: an exact sketch becomes a noisy one, once, exactly as private as it says.

:func:`release` adds discrete Gaussian noise to the integer total of a sketch whose
rows are bounded in norm. The promise is calibrated with the analytic Gaussian, paid
for in a ledger before the noise is drawn, and written into the result's
:class:`PrivacyStatement`. A :class:`PrivateSketch` carries nothing exact; decoding it,
however often, costs nothing more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.errors import PrivacyError
from sketchlearn.privacy.charge import CountMode, Neighbours, recorded_runs
from sketchlearn.privacy.ledger import Ledger, open_ledger
from sketchlearn.privacy.planned import plan_release
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.lineage import Lineage, gathered_lineage
from sketchlearn.sketching.sketch import Sketch, require_same_columns

__all__ = ["release", "release_by_label"]
__public__ = ["release", "release_by_label"]


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
    open_ledger(ledger).charge(plan.charge)
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
    runs = _require_alike(list(sketches.values()))
    some = next(iter(sketches.values()))
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
    charge = replace(plans[public[0]].charge, lineage=recorded_runs(runs))
    open_ledger(ledger).charge(charge)
    return {label: plan.draw(os.urandom)[0] for label, plan in plans.items()}


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


def _require_alike(parts: list[Sketch]) -> Lineage | None:
    """The lineage of all labels, if nothing but rows tells their sketches apart."""
    if not all(isinstance(part, Sketch) for part in parts):
        raise PrivacyError("release_by_label takes exact sketches, one for each label.")
    some = parts[0]
    for part in parts:
        some.features.require_same(part.features, "release together")
        if part.columns != some.columns:
            require_same_columns(some.columns, part.columns, "release together")
            raise PrivacyError(
                "some of these sketches have column names and others not, which would "
                "tell the labels that have rows. Sketch all of them alike."
            )
    known = [part.lineage.unsigned for part in parts if part.lineage is not None]
    try:
        return gathered_lineage(known, are_all=False)
    except PrivacyError:
        raise PrivacyError(
            "the same rows are in the sketches of several labels; a row has one label. "
            "Nothing was released. If they are different rows, say so with "
            "sketch.with_new_lineage()."
        ) from None
