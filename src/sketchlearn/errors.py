"""Every error and warning sketchlearn raises on purpose.

Each error says what was got, what was expected and what to do next, and derives
from :class:`SketchlearnError` *and* from the built-in exception it refines, so
that ``except ValueError`` keeps working.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

__all__ = [
    "BudgetExceeded",
    "ConfigError",
    "ConvergenceWarning",
    "DataPlanWarning",
    "FeatureMapError",
    "FeatureMapMismatch",
    "FileAccessError",
    "ForbiddenFileError",
    "LedgerError",
    "MissingExtraError",
    "MissingFileError",
    "NoRowsError",
    "OpenVocabularyError",
    "PoolingError",
    "PrivacyError",
    "PrivacyWarning",
    "RemovalError",
    "RowRangeError",
    "RowsError",
    "SessionError",
    "SketchFileError",
    "SketchlearnError",
    "TooNoisy",
    "TrainingError",
    "UnsavableError",
    "import_extra",
    "quote",
]


class SketchlearnError(Exception):
    """Base of all errors raised on purpose by sketchlearn."""


class RowsError(SketchlearnError, ValueError):
    """The input rows cannot be used; nothing was added or changed."""


class NoRowsError(RowsError):
    """There are no rows, or none are left."""


class OpenVocabularyError(RowsError, AttributeError):
    """All items are asked for, and which there are was never said.

    ``hasattr`` answers no, as of anything else that an estimator does not have.
    """


class RowRangeError(SketchlearnError, OverflowError):
    """A value lies outside the range the feature map was planned for."""


class MissingFileError(SketchlearnError, FileNotFoundError):
    """A path or glob matches no file."""


class FileAccessError(SketchlearnError, OSError):
    """The system does not let a file be read or written."""


class ForbiddenFileError(FileAccessError, PermissionError):
    """A file that this user may not read or write."""


class ConfigError(SketchlearnError, ValueError):
    """A setting of a training or an experiment is unknown or makes no sense."""


class TrainingError(SketchlearnError, RuntimeError):
    """A training cannot start, or cannot go on."""


class FeatureMapError(SketchlearnError, ValueError):
    """A feature map cannot be built, or cannot do what was asked of it."""


class FeatureMapMismatch(SketchlearnError, ValueError):
    """Two sketches (or a sketch and a map) do not speak of the same features."""


class PoolingError(SketchlearnError, ValueError):
    """The pooling of a sketch does not allow the operation."""


class RemovalError(SketchlearnError, ValueError):
    """More was removed from a sketch than it can have held."""


class SketchFileError(SketchlearnError, ValueError):
    """A file is not a sketch (or feature map) file, or it is damaged."""


class PrivacyError(SketchlearnError, ValueError):
    """A release would not keep its promise, or the promise makes no sense."""


class BudgetExceeded(PrivacyError):
    """The ledger has no room for this release; nothing was released or spent."""


class TooNoisy(PrivacyError):
    """Noise is so large beside what was released that a result would be made of it."""


class SessionError(PrivacyError):
    """Parties cannot add up their sketches by these terms, keys or shares."""


class LedgerError(SketchlearnError, ValueError):
    """A ledger file is damaged, was tampered with, or is not a ledger."""


class UnsavableError(SketchlearnError, TypeError):
    """The object is of a kind that has no file format."""


class MissingExtraError(SketchlearnError, ImportError):
    """An optional dependency is not installed."""


class DataPlanWarning(UserWarning):
    """A feature map was planned from data, and so keeps a trace of that data."""


class PrivacyWarning(UserWarning):
    """A promise is kept but weaker than it looks."""


class ConvergenceWarning(UserWarning):
    """A result is usable but worse than it should be."""


def import_extra(module: str, extra: str) -> ModuleType:
    """Import an optional dependency, or say how to install it.

    Parameters
    ----------
    module : str
        Dotted name of the module.
    extra : str
        Name of the sketchlearn extra that brings it.

    Examples
    --------
    >>> import_extra("json", "io").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{module!r} is needed here and is not installed. "
            f"Install it with: pip install 'sketchlearn[{extra}]'"
        ) from error


def quote(value: Any) -> str:
    """A value of a file, as a message may show it: escaped, at most 80 characters.

    Parameters
    ----------
    value : object
        Plain values of any size.

    Examples
    --------
    >>> quote({"kind": 5}), len(quote("x" * 1000))
    ("{'kind': 5}", 80)
    """
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:78]}.."
