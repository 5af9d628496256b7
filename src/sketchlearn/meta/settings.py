"""Settings of a table of a TOML file, against the types of who reads them.

What the settings mean is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from sketchlearn.errors import ConfigError, quote

__all__ = ["refuse_unknown", "require_at_least", "require_settings"]

_WORDS: dict[Any, str] = {
    int: "a whole number >= 0",
    float: "a finite number",
    bool: "true or false",
    str: "text",
}


def refuse_unknown(settings: Mapping[str, Any], known: Any, where: str) -> None:
    """Refuse keys that nobody would read."""
    unknown = [key for key in settings if key not in known]
    if unknown:
        raise ConfigError(
            f"unknown key {unknown[0]!r} in {where}; known keys: {', '.join(known)}."
        )


def require_settings(
    settings: Mapping[str, Any], reader: Any, where: str, **more: Any
) -> None:
    """Refuse keys that nobody would read, and values of other types.

    Parameters
    ----------
    settings : mapping
        The table.
    reader : type or function
        Whose annotations tell the types.
    where : str
        Name of the table, for messages.
    more : types
        Those of keys that somebody else reads.

    Examples
    --------
    >>> require_settings({"steps": 3}, None, "[train]", steps=int | None)
    """
    hints = {**(get_type_hints(reader) if reader else {}), **more}
    refuse_unknown(settings, hints, where)
    for name, value in settings.items():
        if not _fits(value, hints[name]):
            kind = _named(hints[name])
            raise ConfigError(
                f"{name} must be {kind}; got {quote(value)} (in {where})."
            )


def require_at_least(least: int, **values: int) -> None:
    """Refuse smaller numbers, by the names they have in a file."""
    for name, value in values.items():
        if value < least:
            raise ConfigError(f"{name} must be at least {least}; got {value}.")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a plain value is of a type."""
    kind, inside = get_origin(hint) or hint, get_args(hint)
    if kind is Literal:
        return any(type(value) is type(one) and value == one for one in inside)
    if kind in (Union, UnionType):
        return any(_fits(value, one) for one in inside)
    if kind in (tuple, Sequence):
        if not isinstance(value, list | tuple):
            return False
        if kind is tuple and Ellipsis not in inside:
            return len(value) == len(inside) and all(map(_fits, value, inside))
        return all(_fits(one, inside[0]) for one in value)
    if kind is Mapping:
        return isinstance(value, dict)
    if kind is float:
        return type(value) in (int, float) and abs(value) < inf
    if kind is int:
        return type(value) is int and 0 <= value < 2**63
    return hint is Any or type(value) is hint


def _named(hint: Any) -> str:
    """A type in words."""
    kind, inside = get_origin(hint) or hint, get_args(hint)
    if kind is Literal:
        return f"one of {', '.join(map(str, inside))}"
    if kind in (Union, UnionType):
        return " or ".join(_named(one) for one in inside if one is not type(None))
    if kind in (tuple, Sequence):
        several = "a list" if kind is Sequence or Ellipsis in inside else "a pair"
        return f"{several}, each {_named(inside[0])}"
    return _WORDS.get(kind, "a table")
