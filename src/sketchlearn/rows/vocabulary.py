"""Vocabularies: which items there are, said beforehand or found while reading."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sketchlearn.errors import RowsError, quote
from sketchlearn.rows.ids import Ids, Place, arrow_of, ids_of
from sketchlearn.rows.items import Keys
from sketchlearn.rows.keys import ItemKey, KeyRecipe, integer_keys
from sketchlearn.rows.texts import Texts

__all__ = ["Vocabulary", "VocabularyFit"]
__public__ = ["Vocabulary"]

Item = int | str | bytes


@final
@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Different items in a fixed order.

    Parameters
    ----------
    declared : int, or list, array, Series or Arrow array of ids
        How many items there are, whose ids are then 0, 1, 2 and so on; or their ids,
        all different and none missing: integers, texts or bytes.
    is_learned : bool
        Whether they were found in rows: a map that lists them keeps a trace of these.

    Examples
    --------
    >>> fruit = Vocabulary(["apple", "pear", "plum"])
    >>> len(fruit), fruit.positions_of(["plum", "apple"]).tolist()
    (3, [2, 0])
    >>> fruit.take([1]), Vocabulary(1000).take([7, 8])
    (['pear'], [7, 8])
    """

    declared: Any
    is_learned: bool = False

    def __post_init__(self) -> None:
        declared, place = self.declared, Place("the vocabulary")
        if isinstance(declared, int | np.integer) and not isinstance(declared, bool):
            if not 0 < declared < 2**48:
                raise RowsError(
                    f"a vocabulary has from 1 to 2**48 - 1 items; got {declared}."
                )
            object.__setattr__(self, "declared", int(declared))
            return
        if isinstance(declared, str | bytes):
            raise RowsError("a vocabulary is a list of ids, and not a single text.")
        if isinstance(declared, Iterable) and not hasattr(declared, "__array__"):
            is_arrow = hasattr(declared, "__arrow_c_stream__")
            declared = declared if is_arrow else list(declared)
        ids = ids_of(declared, place)
        if not len(ids):
            raise RowsError("a vocabulary has at least 1 item; got an empty list.")
        listed = _listed(declared, ids, place)
        object.__setattr__(self, "declared", listed)
        twice = _twice(self._lookup, self._order)
        if twice is not None:
            raise RowsError(
                f"items {twice[0]} and {twice[1]} of the vocabulary are the same. Name "
                "every item once."
            )

    def __len__(self) -> int:
        if isinstance(self.declared, int):
            return self.declared
        return len(self.declared)

    def __repr__(self) -> str:
        if isinstance(self.declared, int):
            return f"Vocabulary({self.declared})"
        first = ", ".join(map(quote, self.take(range(min(3, len(self))))))
        more = ", ..." if len(self) > 3 else ""
        return f"Vocabulary of {len(self)} items: {first}{more}"

    @property
    def is_listed(self) -> bool:
        """Whether ids were listed; their keys are then no positions."""
        return not isinstance(self.declared, int)

    @property
    def ids(self) -> Ids:
        """All items, in order."""
        if isinstance(self.declared, int):
            return Ids(np.arange(self.declared))
        return ids_of(self.declared, Place("the vocabulary"))

    def keys(self, recipe: KeyRecipe | None) -> Keys:
        """What a map knows the items by, in order: positions if it has no recipe.

        Raises
        ------
        RowsError
            If two different items have one key.
        """
        name = "" if recipe is None else recipe.name
        if name not in self._keys:
            keys = np.arange(len(self), dtype=np.uint64)
            if recipe is not None:
                keys = self.ids.keys(recipe)
            twice = _twice(keys, np.argsort(keys)) if self.is_listed else None
            if twice is not None:
                raise RowsError(
                    f"items {twice[0]} and {twice[1]} of the vocabulary are different "
                    "and have the same 64-bit key, as somebody may have wanted: they "
                    "would be counted as one. Nothing was added. Hash items with a "
                    "secret key (key=ItemKey.generate()), or leave one of them out."
                )
            self._keys[name] = keys
        return self._keys[name]

    @cached_property
    def _keys(self) -> dict[str, Keys]:
        return {}

    @cached_property
    def _lookup(self) -> Keys:
        """Hashes to find listed items by, under a key that nobody can know.

        Two names are the same if these are: what anyone makes in advance does not
        fit, and chance has 2**-64.
        """
        return _lookup_keys(self.ids, self._salt)

    @cached_property
    def _salt(self) -> KeyRecipe:
        return _salt()

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        return np.argsort(self._lookup)

    @cached_property
    def _sorted(self) -> Keys:
        return self._lookup[self._order]

    @property
    def items(self) -> Sequence[Item]:
        """Ids of all items, in order."""
        if isinstance(self.declared, int):
            return range(self.declared)
        listed: list[Item] = self.declared.to_pylist()
        return listed

    def take(self, positions: Sequence[int] | NDArray[np.integer]) -> list[Item]:
        """Ids of the items at some positions."""
        if isinstance(self.declared, int):
            return [int(position) for position in positions]
        chosen = self.declared.take(pa.array(positions, pa.int64()))
        listed: list[Item] = chosen.to_pylist()
        return listed

    def positions_of(self, ids: Any) -> NDArray[np.int64]:
        """Position of each id; one that is not in the vocabulary is refused."""
        place = Place("the ids")
        asked = ids_of(ids, place)
        found = self.find(asked)
        found = found if asked.codes is None else found[asked.codes]
        if (found < 0).any():
            refuse_unknown(place, int(np.argmax(found < 0)))
        return found

    def equals(self, other: Vocabulary) -> bool:
        """Whether another one has the same items in the same order."""
        if len(self) != len(other) or not (self.is_listed or other.is_listed):
            return len(self) == len(other)
        found = self.find(other.ids)
        found = found if other.ids.codes is None else found[other.ids.codes]
        return np.array_equal(found, np.arange(len(self)))

    def joined(self, other: Vocabulary) -> Vocabulary:
        """These items, then those of another one that are new."""
        if not other.is_listed:
            return other
        new = np.flatnonzero(self.find(other.ids) < 0)
        if not len(new):
            return self
        is_learned = self.is_learned or other.is_learned
        return Vocabulary([*self.items, *other.take(new)], is_learned)

    def find(self, ids: Ids) -> NDArray[np.int64]:
        """Position of each of the values of some ids, or -1."""
        if isinstance(ids.values, Texts) != self._is_text:
            return np.full(len(ids.values), -1, np.int64)
        if not self.is_listed:
            keys = ids.listed_keys()
            inside = keys < np.uint64(len(self))
            return np.where(inside, keys, np.uint64(0)).view(np.int64) - ~inside
        keys = _lookup_keys(ids, self._salt)
        places = np.searchsorted(self._sorted, keys)
        found = self._order[np.minimum(places, len(self) - 1)]
        same = self._lookup[found] == keys
        kind = "i" if isinstance(ids.values, Texts) else ids.values.dtype.kind
        if not self._is_text and self._is_unsigned != (kind == "u"):
            same &= keys < np.uint64(2**63)  # -1 and 2**64 - 1 have the same bits
        return np.where(same, found, -1)

    @property
    def _is_unsigned(self) -> bool:
        return bool(pa.types.is_unsigned_integer(self.declared.type))

    @property
    def _is_text(self) -> bool:
        return self.is_listed and not pa.types.is_integer(self.declared.type)


def _salt() -> KeyRecipe:
    return KeyRecipe.under(ItemKey.generate())


def _lookup_keys(ids: Ids, salt: KeyRecipe) -> Keys:
    """Hashes of the values of ids that tell different ones apart."""
    if isinstance(ids.values, Texts):
        return salt.of_texts(ids.values)
    return integer_keys(ids.values)


def _twice(keys: Keys, order: NDArray[np.int64]) -> list[int] | None:
    """Positions of the first two keys that are equal, if any are."""
    same = np.flatnonzero(np.diff(keys[order]) == 0)
    if not len(same):
        return None
    pair: list[int] = np.sort(order[same[0] : same[0] + 2]).tolist()
    return pair


def _listed(declared: Any, ids: Ids, place: Place) -> pa.Array:
    """Ids as an Arrow array that tells texts from bytes."""
    if isinstance(ids.values, np.ndarray):
        return pa.array(ids.values if ids.codes is None else ids.values[ids.codes])
    listed = arrow_of(declared, place)
    if pa.types.is_dictionary(listed.type):
        return listed.cast(listed.type.value_type)
    return listed


def refuse_unknown(place: Place, position: int) -> NoReturn:
    """Say where the data hold an item that was not declared.

    Not which: ids may be of people, and messages go where data must not.
    """
    raise RowsError(
        f"the item in {place.of(position)} is not in the declared vocabulary. Nothing "
        "was added. Declare a vocabulary that has it, or leave the vocabulary open."
    )


@final
class VocabularyFit:
    """The different items of ids that are read, in the order they first come in.

    Memory grows with the different items, and not with the ids.

    Examples
    --------
    >>> fit = VocabularyFit()
    >>> for part in (["b", "a", "b"], ["a", "c"]):
    ...     fit.add(ids_of(part, Place("the ids")))
    >>> fit.vocabulary().items
    ['b', 'a', 'c']
    """

    def __init__(self) -> None:
        self._salt, self._known = _salt(), np.zeros(0, np.uint64)
        self._texts: list[bytes] = []
        self._integers: list[Keys] = []
        self._is_text: bool | None = None
        self._is_unsigned = self._is_negative = False

    def add(self, ids: Ids) -> None:
        """Look at some ids, all of the kind of those before."""
        if not len(ids):
            return
        is_text = isinstance(ids.values, Texts)
        if self._is_text not in (None, is_text):
            raise RowsError(
                "some ids are integers and some are texts. Nothing was added. Give "
                "all of them as one kind."
            )
        self._is_text = is_text
        keys = _lookup_keys(ids, self._salt)
        used = np.arange(len(keys)) if ids.codes is None else _in_order(ids.codes)
        new = used[~np.isin(keys[used], self._known)]
        _, firsts = np.unique(keys[new], return_index=True)
        new = new[np.sort(firsts)]
        if not len(new):
            return
        self._known = np.union1d(self._known, keys[new])
        if isinstance(ids.values, Texts):
            self._texts += ids.values.take(new)
        else:
            found = ids.values[new]
            self._is_unsigned |= bool(found.max() >= 2**63)
            self._is_negative |= bool(found.min() < 0)
            if self._is_unsigned and self._is_negative:
                raise RowsError(
                    "some ids are negative and some are 2**63 or more: two may "
                    "have the same 64 bits. Nothing was added. Give them as texts."
                )
            self._integers.append(integer_keys(found))

    def vocabulary(self) -> Vocabulary:
        """All items so far; texts as text where all of them are."""
        if self._is_text is None:
            raise RowsError("no items to make a vocabulary of.")
        if not self._is_text:
            keys = np.concatenate(self._integers)
            signed = keys.view(np.int64)
            return Vocabulary(keys if self._is_unsigned else signed, is_learned=True)
        listed = pa.array(self._texts, pa.large_binary())
        try:
            return Vocabulary(listed.cast(pa.large_string()), is_learned=True)
        except pa.ArrowInvalid:
            return Vocabulary(listed, is_learned=True)


def _in_order(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Different codes, in the order they first come in."""
    different, firsts = np.unique(codes, return_index=True)
    ordered: NDArray[np.int64] = different[np.argsort(firsts)]
    return ordered
