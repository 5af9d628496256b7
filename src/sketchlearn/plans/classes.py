"""Plans of two rounds for classes: a map for each, in units that all of them share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.density.components import pooled_deviations
from sketchlearn.decoders.moments.centring import second_moment_part
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.cells import CellFeatures
from sketchlearn.features.scaling import Origin
from sketchlearn.plans.cells import MixtureCells
from sketchlearn.plans.rounds import DensityPlan
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["first_round_of", "plan_second_rounds"]


def plan_second_rounds(
    first: Mapping[Any, Sketch | PrivateSketch],
    cells: MixtureCells,
    *,
    sketch_size: int | Literal["auto"],
    seed: int,
    extremes: NDArray[np.floating] | None = None,
) -> dict[Any, AbstractFeatureMap]:
    """The map of both rounds of each class, from the sketches of their first rounds.

    Parameters
    ----------
    first : mapping
        From each class to the sketch of its first round.
    cells : MixtureCells
        Of every class; their units are the deviations over all classes.
    sketch_size : int or "auto"
        Numbers that both rounds of one class may hold.
    seed : int
    extremes : array of shape (2, n_features), optional
        Of the rows of all classes.
    """
    plan = DensityPlan(cells, sketch_size, seed)
    known = {label: plan.after(one, extremes) for label, one in first.items()}
    units = pooled_deviations([one.moments for one in known.values()])
    plan = replace(plan, cells=replace(cells, units=units))
    # Units come from all classes: one that was not paid for shows in every map.
    is_public = all(one.origin == "declared" for one in known.values())
    origin: Origin = "declared" if is_public else "data"
    return {c: plan.second(replace(one, origin=origin)) for c, one in known.items()}


def first_round_of(known: Iterable[Sketch]) -> tuple[AbstractFeatureMap, bool]:
    """The map classes were first sketched with, and whether a second round followed."""
    maps = [sketch.feature_map for sketch in known]
    if any(feature_map.find(CellFeatures) for feature_map in maps):
        return second_moment_part(maps[0])[0], True
    return maps[0], False
