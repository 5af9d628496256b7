"""What the modules of a package declare, found without a list of them.

A class is found by an attribute that it sets itself, a value by its type: to add one
is to write it into a module of the package. Only modules whose source has the word are
imported, so that looking for one alternative does not load what all others need.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from importlib.util import find_spec
from types import ModuleType
from typing import Any, TypeVar

__all__ = ["classes_declaring", "values_declared"]

Value = TypeVar("Value")


def classes_declaring(attribute: str, *packages: str) -> dict[Any, type]:
    """Classes that set an attribute, by its value.

    Parameters
    ----------
    attribute : str
        Name of a class attribute.
    packages : str
        Names of modules, or of packages with all modules below them.

    Examples
    --------
    >>> sorted(classes_declaring("weights_kind", "sketchlearn.sqnet"))
    ['sqnet']
    """
    found: dict[Any, type] = {}
    for module in _modules_with(attribute, packages):
        for cls in vars(module).values():
            own = inspect.isclass(cls) and cls.__module__ == module.__name__
            if not own or attribute not in vars(cls):
                continue
            value = vars(cls)[attribute]
            if found.get(value, cls) is not cls:
                raise TypeError(
                    f"{cls.__name__} and {found[value].__name__} both have "
                    f"{attribute} = {value!r}: give one of them another."
                )
            found[value] = cls
    return found


def values_declared(kind: type[Value], *packages: str) -> list[Value]:
    """Values of a type at the top level of modules, in the order of their names."""
    found = [
        value
        for module in _modules_with(f"{kind.__name__}(", packages)
        for value in vars(module).values()
        if isinstance(value, kind)
    ]
    return list({id(value): value for value in found}.values())


def _modules_with(word: str, packages: tuple[str, ...]) -> list[ModuleType]:
    """Modules whose source has a word; without a source, all of them."""
    names = [name for package in packages for name in _names(package)]
    return [importlib.import_module(name) for name in names if _mentions(name, word)]


def _names(package: str) -> list[str]:
    path = getattr(importlib.import_module(package), "__path__", None)
    if path is None:
        return [package]
    return [found.name for found in pkgutil.walk_packages(path, f"{package}.")]


def _mentions(name: str, word: str) -> bool:
    spec = find_spec(name)
    source = getattr(spec and spec.loader, "get_source", lambda name: None)(name)
    return source is None or word in source
