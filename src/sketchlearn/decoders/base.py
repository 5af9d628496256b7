"""The interface of a decoder ψ: one sketch in, the parameters of a model out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from math import inf
from typing import Any, Generic, TypeVar, final

import numpy as np

from sketchlearn.errors import RowRangeError
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["AbstractDecoder", "Decoding", "require_finite"]

Params = TypeVar("Params")


@final
@dataclass(frozen=True)
class Decoding(Generic[Params]):
    """What a decoder found: finite numbers, or else it cannot be made.

    Parameters
    ----------
    params : object
        The decoded parameters.
    residual : float
        Relative distance between the sketch and what the parameters explain of it.
    n_iter : int
        Iterations used; 0 for closed forms.
    converged : bool
        Whether the search came to its end; a search that stops early is no error.
    """

    params: Params
    residual: float = 0.0
    n_iter: int = 0
    converged: bool = True

    def __post_init__(self) -> None:
        require_finite(self.params)


class AbstractDecoder(ABC, Generic[Params]):
    """Turns a sketch into parameters, without ever seeing a row."""

    @abstractmethod
    def decode(self, sketch: Sketch | PrivateSketch) -> Decoding[Params]:
        """Decode one sketch."""


def require_finite(found: Any) -> None:
    """Refuse what was decoded if a number in it is none, or beyond all floats.

    Parameters
    ----------
    found : object
        Numbers and arrays, in mappings, sequences and dataclasses. Only a limit that
        there is not, a field of a dataclass that is ``math.inf``, need not be finite.

    Raises
    ------
    RowRangeError
        If not all of them are finite.
    """
    if isinstance(found, Sketch | PrivateSketch | str):
        return
    if isinstance(found, float | complex | np.inexact | np.ndarray):
        numbers = np.asarray(found)
        if numbers.dtype.kind in "fc" and not np.isfinite(numbers).all():
            raise RowRangeError(
                "what was decoded from this sketch is not all finite numbers. Nothing "
                "was fitted. Rows that are nearly all the same, or of extreme "
                "magnitudes, do this: change their units, or ask for fewer clusters "
                "or components."
            )
    elif isinstance(found, Mapping):
        require_finite(list(found.values()))
    elif isinstance(found, list | tuple):
        for one in found:
            require_finite(one)
    elif is_dataclass(found) and not isinstance(found, type):
        values = [getattr(found, field.name) for field in fields(found)]
        require_finite([one for one in values if type(one) is not float or one != inf])
