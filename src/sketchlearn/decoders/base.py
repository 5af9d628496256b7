"""The interface of a decoder ψ: one sketch in, the parameters of a model out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar, final

from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["AbstractDecoder", "Decoding"]

Params = TypeVar("Params")


@final
@dataclass(frozen=True)
class Decoding(Generic[Params]):
    """What a decoder found.

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


class AbstractDecoder(ABC, Generic[Params]):
    """Turns a sketch into parameters, without ever seeing a row."""

    @abstractmethod
    def decode(self, sketch: Sketch | PrivateSketch) -> Decoding[Params]:
        """Decode one sketch."""
