"""Fields of descriptions: which plain values stand where, and of what size.

Values of a description, of a map or of a model, come from a file nobody vouches for.
Here each is checked before anything is made of it: a whole number is in its range, a
word is short, and an array holds as many bytes as its shape says. What the fields mean
is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, prod
from typing import Any, final

from sketchlearn.errors import FeatureMapError, quote

__all__ = [
    "ARRAY",
    "COLUMNS",
    "COUNT",
    "COUNT_OR_0",
    "FLAG",
    "KEY_RECIPE",
    "MODEL",
    "NAMES",
    "NETWORK",
    "NUMBER",
    "NUMBERED",
    "ORIGIN",
    "SCALING",
    "SEED",
    "SIZE",
    "SIZE_OR_0",
    "TABLE",
    "TABLES",
    "WORD",
    "Field",
    "is_whole",
    "nested_values",
    "one_of",
    "or_none",
    "require_fields",
]

_LARGEST_SIZE = 2**48
_ITEM_BYTES = {"<f8": 8, "<f4": 4, "<i8": 8, "|b1": 1}


@final
@dataclass(frozen=True)
class Field:
    """What a field of a description may hold.

    Parameters
    ----------
    expected : str
        In words.
    accepts : callable
        Whether a value is such.
    required : bool
        Whether it may not be left out.
    is_nested : bool
        Whether it holds the description of another map, or a list of them.
    """

    expected: str
    accepts: Callable[[Any], bool]
    required: bool = True
    is_nested: bool = False


def require_fields(
    found: Mapping[str, Any], fields: Mapping[str, Field], what: str
) -> None:
    """Refuse the fields of ``what`` if they are others than these, or wrong ones."""
    for name in sorted({*found, *fields}, key=str):
        if name not in fields:
            problem = f"{quote(name)} is not one of them"
        elif name not in found:
            if not fields[name].required:
                continue
            problem = f"{name} is missing"
        elif not fields[name].accepts(found[name]):
            problem = f"{name} must be {fields[name].expected}; got " + quote(
                found[name]
            )
        else:
            continue
        raise FeatureMapError(f"{what} has wrong fields: {problem}.")


def nested_values(
    description: Mapping[str, Any], fields: Mapping[str, Field]
) -> list[Any]:
    """The descriptions inside a description, in order."""
    found: list[Any] = []
    for name, field in fields.items():
        if field.is_nested:
            value = description.get(name)
            found += value if isinstance(value, list) else [value]
    return found


def is_whole(low: int, high: int) -> Callable[[Any], bool]:
    """Accepts whole numbers from ``low`` to below ``high``; True is not 1."""
    return lambda value: type(value) is int and low <= value < high


def _is_all_keys(value: Any) -> bool:
    return type(value) is int and value == 2**64


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < inf and abs(value) < 2.0**1000


def _is_word(value: Any) -> bool:
    return type(value) is str and re.fullmatch("[ -~]{0,80}", value) is not None


def _is_name(value: Any) -> bool:
    return (
        type(value) is str and re.fullmatch("[A-Za-z0-9_.]{1,128}", value) is not None
    )


def _is_array(value: Any) -> bool:
    """Whether an encoded array, not empty, has as many bytes as its shape says."""
    if not isinstance(value, Mapping) or set(value) != {"dtype", "shape", "data"}:
        return False
    dtype, shape, data = value["dtype"], value["shape"], value["data"]
    if type(dtype) is not str or dtype not in _ITEM_BYTES or type(data) is not str:
        return False
    if not isinstance(shape, list) or not 1 <= len(shape) <= 2:
        return False
    if not all(is_whole(1, _LARGEST_SIZE)(size) for size in shape):
        return False
    return len(data) == -(-prod(shape) * _ITEM_BYTES[dtype] // 3) * 4


def _is_numbered(value: Any) -> bool:
    """Whether feature numbers, as a list or as an array."""
    if isinstance(value, list):
        return all(is_whole(0, _LARGEST_SIZE)(item) for item in value)
    return _is_array(value) and len(value["shape"]) == 1


def _is_of(fields: Mapping[str, Field]) -> Callable[[Any], bool]:
    def accepts(value: Any) -> bool:
        if not isinstance(value, Mapping) or set(value) - set(fields):
            return False
        return all(
            rule.accepts(value[name]) if name in value else not rule.required
            for name, rule in fields.items()
        )

    return accepts


def or_none(rule: Field) -> Field:
    """The same field, which may be None or left out."""
    return Field(
        f"{rule.expected}, or nothing",
        lambda value: value is None or rule.accepts(value),
        required=False,
    )


def one_of(*words: str) -> Field:
    """A field for one of these words, which may be left out."""
    return Field(f"one of {', '.join(words)}", words.__contains__, required=False)


SIZE = Field("a whole number from 1 to 2**48", is_whole(1, _LARGEST_SIZE))
VOCABULARY = Field(
    "a whole number from 1 to 2**48, or 2**64",
    lambda value: is_whole(1, _LARGEST_SIZE)(value) or _is_all_keys(value),
)
COUNT = Field("a whole number from 1 to 2**24", is_whole(1, 2**24 + 1), False)
"""A size of a model, whose tensors show it: larger ones are not met."""

COUNT_OR_0 = Field("a whole number from 0 to 2**24", is_whole(0, 2**24 + 1), False)
FLAG = Field("true or false", lambda value: type(value) is bool, required=False)
SIZE_OR_0 = Field("a whole number from 0 to 2**48", is_whole(0, _LARGEST_SIZE), False)
SEED = Field(
    "a whole number of at most 128 bits", is_whole(-(2**128), 2**128), required=False
)
NUMBER = Field("a number", _is_number, required=False)
WORD = Field("a word of at most 80 plain characters", _is_word, required=False)
KEY_RECIPE = Field(
    "'siphash', or it with the name of a key",
    lambda value: (
        type(value) is str
        and re.fullmatch("siphash(:[0-9a-f]{32})?", value) is not None
    ),
    required=False,
)
"""How texts become keys; left out by maps that take positions, or are older."""

ORIGIN = Field("'declared' or 'data'", _is_word, required=False)
"""Says whether other fields were read from rows."""

ARRAY = Field("an array of as many bytes as its shape says", _is_array)
NUMBERED = Field("feature numbers", _is_numbered, required=False)
TABLE = Field("a description", lambda value: isinstance(value, Mapping), is_nested=True)
TABLES = Field(
    "a list of descriptions", lambda value: isinstance(value, list), is_nested=True
)
NAMES = Field(
    "a list of different names",
    lambda value: (
        isinstance(value, list)
        and all(_is_name(name) for name in value)
        and len(set(value)) == len(value)
    ),
    required=False,
)
COLUMNS = Field(
    "a list of names",
    lambda value: isinstance(value, list) and all(type(name) is str for name in value),
    required=False,
)
SCALING = Field(
    "shift, factor and origin",
    _is_of({"shift": ARRAY, "factor": ARRAY, "origin": WORD}),
)
NETWORK = Field(
    "the sizes and the kind of a network",
    _is_of(
        {
            "n_inputs": SIZE,
            "n_outputs": SIZE,
            "kind": WORD,
            "depth": SIZE_OR_0,
            "width": SIZE_OR_0,
            "head": or_none(WORD),
            "windows": SIZE_OR_0,
        }
    ),
)
MODEL = Field("a name and a checksum", _is_of({"name": WORD, "checksum": WORD}))
