"""Hand-tuned numbers: each is moved, and what becomes of the figures it was set by.

A decoder keeps its hand-tuned numbers in a frozen dataclass whose name ends in
``Tuning``. Each of them is multiplied and divided by ten (a share of one also by 1.5),
and every figure of the decoder is printed over that of the default; lower is better,
and 1.00 says that nothing changed. A number whose moves change no figure is marked
``unnoticed``: it should go, or get a case that notices.

A case is a name and a function from a tuning to a figure. To add some, write one
function under ``@cases_of("NameOfTuning")`` in a module of ``tuning_cases``. With
--data, some training sets are cases too; test sets never are.

usage: python3 dev.py run benchmarks/tuning.py [NAME ...] [--data ../shared]
"""

import argparse
import importlib
import pkgutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tuning_cases
from tuning_cases.base import BUILDERS, Case

from sketchlearn import decoders, plans
from sketchlearn.errors import ConfigError, SketchlearnError

NOTICED = 0.01
"""Relative change of a figure that counts."""

for found in pkgutil.iter_modules(tuning_cases.__path__, "tuning_cases."):
    importlib.import_module(found.name)


@dataclass(frozen=True)
class Measured:
    """What became of the figures when one field was moved."""

    field: str
    value: Any
    ratios: dict[str, list[float]]
    """By move: figures over those of the default, in the order of the cases."""

    @property
    def is_noticed(self) -> bool:
        """Whether a figure changed."""
        found = np.array(list(self.ratios.values()))
        return bool((np.abs(found - 1) > NOTICED).any())


def find_tunings() -> dict[str, type]:
    """All tunings of decoders and plans, by name."""
    found = {}
    for package in (decoders, plans):
        for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            for name, value in vars(importlib.import_module(info.name)).items():
                own = getattr(value, "__module__", None) == info.name
                if own and name.endswith("Tuning") and is_dataclass(value):
                    found[name] = value
    return found


def cases_for(name: str, data: Path | None = None) -> list[Case]:
    return [case for build in BUILDERS.get(name, []) for case in build(data)]


def moves(value: Any) -> dict[str, Any]:
    """Other values of a field, by what was done to it; tuples are moved as a whole."""
    members = value if isinstance(value, tuple) else (value,)
    first = next((each for each in members if each != 0), 0)
    if isinstance(first, bool | str) or first is None or first == 0:
        return {}
    factors = {"x10": 10.0, "/10": 0.1}
    if 0 < first < 1:
        factors |= {"x1.5": 1.5, "/1.5": 1 / 1.5}
    moved = {label: _moved(value, factor) for label, factor in factors.items()}
    return {label: other for label, other in moved.items() if other != value}


def _moved(value: Any, factor: float) -> Any:
    if isinstance(value, tuple):
        return tuple(_moved(each, factor) for each in value)
    if isinstance(value, int):
        return max(1, round(value * factor))
    return min(value * factor, 1.0) if 0 < value < 1 else value * factor


def figure_of(case: Case, tuning: Any) -> float:
    """The figure; infinite where nothing could be decoded."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return float(case[1](tuning))
    except (SketchlearnError, ArithmeticError, ValueError):
        return float("inf")


def measure(cls: type, cases: list[Case]) -> Iterator[Measured]:
    """Every field of a tuning moved, by all cases; not to values that it refuses."""
    default = cls()
    before = [figure_of(case, default) for case in cases]
    for field in fields(cls):
        value, ratios = getattr(default, field.name), {}
        for label, other in moves(value).items():
            try:
                tuning = replace(default, **{field.name: other})
            except ConfigError:
                continue
            after = [figure_of(case, tuning) for case in cases]
            ratios[label] = [
                1.0 if new == old else new / max(old, 1e-12)
                for new, old in zip(after, before, strict=True)
            ]
        yield Measured(field.name, value, ratios)


def report(name: str, cls: type, cases: list[Case]) -> int:
    """Print the ratios of one tuning; how many of its fields nobody notices."""
    print(f"\n{name}")
    for number, case in enumerate(cases, 1):
        print(f"  [{number}] {case[0]}: {figure_of(case, cls()):.4g}")
    unnoticed = 0
    for found in measure(cls, cases):
        unnoticed += not found.is_noticed
        mark = "" if found.is_noticed else "   unnoticed"
        print(f"  {found.field} = {found.value}{mark}", flush=True)
        for label, ratios in found.ratios.items():
            print(f"    {label:>5} ", *(f"{ratio:7.3f}" for ratio in ratios))
    return unnoticed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these tunings")
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    unnoticed = 0
    for name, cls in find_tunings().items():
        if not options.names or name in options.names:
            unnoticed += report(name, cls, cases_for(name, options.data))
    print(f"\n{unnoticed} fields are unnoticed")


if __name__ == "__main__":
    main()
