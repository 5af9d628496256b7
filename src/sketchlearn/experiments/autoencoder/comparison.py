"""The paper's table: every method on every set, and narrow sets with small codes."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from sketchlearn.experiments.autoencoder.methods import (
    AUTOENCODER_METHODS,
    OWN_CODES,
    SPECIFIC,
    TOLD_CLASSES,
    autoencoder_method,
    missing_weights,
)
from sketchlearn.experiments.autoencoder.sets import (
    AVERAGE_COLUMN,
    CODE_NUMBERS,
    ReconstructionSet,
)
from sketchlearn.experiments.autoencoder.specific import SpecificAutoencoders
from sketchlearn.report import Cell, format_table

__all__ = ["Accuracies", "accuracy_table", "evaluate_accuracies", "narrow_table"]

Say = Callable[[str], object]


@final
@dataclass(frozen=True, eq=False)
class Accuracies:
    """Balanced accuracies in percent."""

    widths: Mapping[str, int]
    """Columns of each set."""

    letters: Mapping[str, str]
    """Short names of the sets."""

    marks: Mapping[str, str]
    """Why rows are not those of the paper's set, by set."""

    comparable: tuple[str, ...]
    """Sets whose coding is known to be that of the paper."""

    found: Mapping[str, Mapping[str, float]]
    """By label of a method and set."""

    narrow: Mapping[str, Mapping[str, Mapping[int, float]]]
    """By label, narrow set and numbers of a code."""

    printed: Mapping[str, Mapping[str, float]]
    """The paper's, likewise."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "columns": dict(self.widths),
            "marks": dict(self.marks),
            "comparable": list(self.comparable),
            "accuracies": self.found,
            "narrow": self.narrow,
            "printed": self.printed,
        }


def evaluate_accuracies(
    sets: Sequence[ReconstructionSet],
    methods: Sequence[str],
    specific: SpecificAutoencoders,
    *,
    printed: Mapping[str, Mapping[str, float]] | None = None,
    weights: str | None = None,
    say: Say = lambda text: None,
) -> Accuracies:
    """Fit every method to the training rows of each set and reconstruct the others.

    Parameters
    ----------
    sets : sequence of ReconstructionSet
        Datasets; autoencoders trained with one are judged on all of them.
    methods : sequence of str
        Of :data:`~sketchlearn.experiments.autoencoder.methods.AUTOENCODER_METHODS`;
        those without weights are left out.
    specific : SpecificAutoencoders
        Where dataset-specific ones are trained.
    printed : mapping, optional
        The paper's accuracies.
    weights : path, optional
        Folder of weights that the package does not have.
    say : callable
        Receives lines of progress.
    """
    found: dict[str, dict[str, float]] = {}
    narrow: dict[str, dict[str, dict[int, float]]] = {}
    if SPECIFIC in methods:
        for data in sets:
            coder = specific.of(data, data.n_codes)
            found[f"AE (train: {data.letter})"] = {
                other.name: other.accuracy(coder.reconstruct) for other in sets
            }
    sketched = [name for name in methods if name != SPECIFIC]
    for name in sketched:
        if missing_weights(name, weights):
            continue
        say(f"{AUTOENCODER_METHODS[name]} on {len(sets)} sets")
        found[AUTOENCODER_METHODS[name]] = {
            data.name: _accuracy(data, name, data.n_codes, weights) for data in sets
        }
    for name in methods:
        if name not in OWN_CODES:
            by_set = _narrow(sets, name, specific, found)
            narrow.update({AUTOENCODER_METHODS[name]: by_set} if by_set else {})
    return Accuracies(
        {data.name: data.n_features for data in sets},
        {data.name: data.letter for data in sets},
        {data.name: data.mark for data in sets if data.mark},
        tuple(data.name for data in sets if data.is_comparable),
        found,
        narrow,
        printed or {},
    )


def _accuracy(
    data: ReconstructionSet, name: str, n_components: int, weights: str | None = None
) -> float:
    method = autoencoder_method(name, n_components=n_components, weights=weights)
    fitted = method.fit(data.training, data.training_labels)
    return data.accuracy(fitted.reconstruct, with_labels=name in TOLD_CLASSES)


def _narrow(
    sets: Sequence[ReconstructionSet],
    name: str,
    specific: SpecificAutoencoders,
    found: Mapping[str, Mapping[str, float]],
) -> dict[str, dict[int, float]]:
    """Accuracies of narrow sets with a small code, beside those that are known."""
    result = {}
    for data in sets:
        few = data.narrow_codes
        if few is None:
            continue
        label = AUTOENCODER_METHODS[name]
        label = f"AE (train: {data.letter})" if name == SPECIFIC else label
        if name == SPECIFIC:
            small = data.accuracy(specific.of(data, few).reconstruct)
        else:
            small = _accuracy(data, name, few)
        result[data.name] = {few: small, data.n_codes: found[label][data.name]}
    return result


def accuracy_table(found: Accuracies) -> str:
    """Ours, and below each row what the paper prints for it."""
    shown = [_head(found, name) for name in found.widths]
    heads = ["balanced accuracy, percent", *shown, AVERAGE_COLUMN, "without H"]
    rows: list[list[Cell]] = [["columns", *found.widths.values(), "", ""]]
    for label, values in found.found.items():
        rows.append([label, *_cells(found, values)])
        if label in found.printed:
            rows.append(["  printed", *_cells(found, found.printed[label])])
    for label, values in found.printed.items():
        if label not in found.found:
            rows.append([f"printed: {label}", *_cells(found, values)])
    title = "Autoencoders of zeros and ones: half of the rows sketched, half coded"
    return "\n".join([format_table(heads, rows, title=title), *_notes(found)])


def narrow_table(found: Accuracies) -> str:
    """Narrow sets with codes of the paper's size, and with a quarter of the columns."""
    columns = [
        (name, codes)
        for name, by_codes in next(iter(found.narrow.values())).items()
        for codes in by_codes
    ]
    heads = [
        f"{found.letters[n]}: {found.widths[n]} to {codes}" for n, codes in columns
    ]
    rows = [
        [label, *(_percent(by_set[name][codes]) for name, codes in columns)]
        for label, by_set in found.narrow.items()
    ]
    title = (
        "Narrow sets, from columns to numbers of a code: a quarter of the columns, and "
        "the paper's 50\n(or all, where there are fewer: then nothing has to be lost)"
    )
    return format_table(["balanced accuracy, percent", *heads], rows, title=title)


def _cells(found: Accuracies, values: Mapping[str, float]) -> list[str]:
    """Of all sets, their mean as printed or computed, and that of comparable ones."""
    average = values.get(AVERAGE_COLUMN)
    if average is None:
        average = float(np.mean([values[name] for name in found.widths]))
    kept = [values[name] for name in found.comparable if name in values]
    known = [values.get(name, np.nan) for name in found.widths]
    rest = float(np.mean(kept)) if kept else np.nan
    return [_percent(value) for value in (*known, average, rest)]


def _percent(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.1f}"


def _head(found: Accuracies, name: str) -> str:
    return found.letters[name] + "*" * (name in found.marks)


def _notes(found: Accuracies) -> list[str]:
    """What to know when comparing with the paper."""
    listed = "; ".join(f"{letter}: {name}" for name, letter in found.letters.items())
    notes = [
        f"{listed}.",
        "Printed averages are over the paper's seven sets; ours are over all columns "
        "shown.",
        "AE (train: X) are trained with the same half of X that others sketch. RM is "
        "randomised MNIST: the paper's networks were trained with it, also with rows "
        "that are coded here, and M is no new dataset to them. Those of the package "
        "are small and trained for minutes: see their cards.",
        "+MSK is told the class of each row, as in the paper. Ours per class, and +MSK "
        "where not told, weigh classes by the row; their codes have these weights "
        "beside their numbers.",
    ]
    narrow = [
        found.letters[name] for name, d in found.widths.items() if d <= CODE_NUMBERS
    ]
    if narrow:
        notes.append(
            f"Codes of {CODE_NUMBERS} numbers do not compress {', '.join(narrow)}, "
            "which have no more columns here: what they show is in the table of narrow "
            "sets, and averages over them are too high."
        )
    marked = [f"{name} ({mark})" for name, mark in found.marks.items()]
    if marked:
        notes.append(f"* not the paper's rows: {'; '.join(marked)}.")
    if len(found.comparable) < len(found.widths):
        notes.append(
            "H codes the rarer allele as 1, H flipped a random one; what the paper "
            "does is not known, and its one column stands beside both."
        )
    return [textwrap.fill(note, 88) for note in notes]
