"""Weights: learned tensors with what they are for, in one file that runs no code.

A file is the library's container (:mod:`sketchlearn.files.container`) with float32
tensors, some of them in half precision, an architecture (``spec``) and a model card
(``card``), both JSON. What the tensors compute is not known here.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import FeatureMapError, SketchFileError, UnsavableError
from sketchlearn.files.container import (
    HEADER_LIMIT,
    MAX_BYTES,
    Contents,
    body,
    canonical_json,
    damaged,
    decode,
    encode,
    fail,
    is_shallow,
    parse_canonical,
    require_fields,
)
from sketchlearn.files.durable import open_regular, path_text, write_file

__all__ = [
    "AbstractLearned",
    "Weights",
    "decode_weights",
    "encode_weights",
    "holds_weights",
    "load_weights",
    "save_weights",
    "tensors_digest",
]

_WEIGHTS_FIELDS = {
    "format": "sketchlearn-weights",
    "version": "1",
    "kind": "[a-z][a-z0-9-]{0,39}",
}
"""Patterns of the fields."""

_SPEC, _CARD = "spec.json", "card.json"
"""Texts that are tensors: the header is too small for them."""


@final
@dataclass(frozen=True, eq=False)
class Weights:
    """Learned tensors, the architecture they belong to, and their model card.

    Parameters
    ----------
    kind : str
        What they are weights of, such as ``"sqnet"``.
    spec : mapping
        The architecture, as JSON values.
    tensors : mapping of float32 arrays
        By name; finite. Kept as read-only copies.
    card : mapping
        How they were made and how good they are, as JSON values.
    model : str
        Name under which they come with the package; empty for any other weights.
    half : collection of str
        Names of tensors that take half the space in a file: each of their numbers
        must be one of float16.

    Examples
    --------
    >>> ones = np.ones((2, 3), np.float32)
    >>> weights = Weights("sqnet", {"depth": 1}, {"w": ones}, {"seed": 0})
    >>> weights.card["seed"], weights.tensors["w"].shape
    (0, (2, 3))
    """

    kind: str
    spec: Mapping[str, Any]
    tensors: Mapping[str, NDArray[np.float32]]
    card: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    half: Collection[str] = frozenset()

    def __post_init__(self) -> None:
        if not re.fullmatch(_WEIGHTS_FIELDS["kind"], self.kind):
            raise UnsavableError(
                f"kind must be up to 40 small letters, digits and -; got {self.kind!r}."
            )
        frozen = {name: _frozen(name, a) for name, a in self.tensors.items()}
        for name in self.half:
            _require_half(name, frozen.get(name))
        object.__setattr__(self, "half", frozenset(self.half))
        object.__setattr__(self, "tensors", frozen)
        object.__setattr__(self, "spec", _plain("spec", self.spec))
        object.__setattr__(self, "card", _plain("card", self.card))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the file these weights make, as 64 hexadecimal digits."""
        return hashlib.sha256(encode_weights(self)).hexdigest()


class AbstractLearned(ABC):
    """What is built from weights of one kind, and written back as them.

    A subclass sets ``weights_kind``; it is found by that, and nothing else lists it.
    """

    weights_kind: ClassVar[str]
    """What weights call themselves, such as ``"sqnet"``."""

    @abstractmethod
    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        """Fields, tensors and a model card as one value, to be saved."""

    @classmethod
    @abstractmethod
    def _build(cls, weights: Weights) -> Self:
        """Check weights of this kind before anything is made of them, and build.

        The types and ranges of all fields come first, then names and shapes of the
        tensors, which follow from them one by one: no file takes more memory than it
        is large.
        """

    @classmethod
    def from_weights(cls, weights: Weights) -> Self:
        """Undo :meth:`to_weights`, or refuse what it would not write.

        Parameters
        ----------
        weights : Weights
            Of this kind; of a file that nobody vouches for, perhaps.
        """
        if weights.kind != cls.weights_kind:
            raise FeatureMapError(
                f"these are weights of kind {weights.kind!r}, and {cls.__name__} is "
                f"built from {cls.weights_kind!r}. Load them with load_model."
            )
        built = cls._build(weights)
        if weights.model:  # its file has the checksum of the package
            return built
        written = built.to_weights()
        given = {name: written.spec.get(name) for name in weights.spec}
        same = canonical_json(given) == canonical_json(weights.spec)
        if not same or tensors_digest(written.tensors) != tensors_digest(
            weights.tensors
        ):
            raise SketchFileError(
                f"these weights are not written the way {cls.__name__}.to_weights "
                "writes; get the original file."
            )
        return built


def save_weights(weights: Weights, path: str | os.PathLike[str]) -> None:
    """Write weights to a file, all of it or nothing.

    Parameters
    ----------
    weights : Weights
        What to save.
    path : path
        Where; an existing file is replaced, and only when the new one is on disk.

    Examples
    --------
    >>> import tempfile
    >>> weights = Weights("sqnet", {}, {"w": np.ones(3, np.float32)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_weights(weights, f"{folder}/w.safetensors")
    ...     load_weights(f"{folder}/w.safetensors").digest == weights.digest
    True
    """
    write_file(path, encode_weights(weights))


def load_weights(
    path: str | os.PathLike[str],
    *,
    checksum: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> Weights:
    """Read back what :func:`save_weights` wrote, or refuse the file.

    Parameters
    ----------
    path : path
        A regular file.
    checksum : str, optional
        SHA-256 the file must have, as ``sha256sum`` prints it. Without one, damage is
        found and deceit is not.
    max_bytes : int
        Refuse larger files.
    """
    name = path_text(path)
    with open_regular(name) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > max_bytes:
            raise SketchFileError(
                f"{name!r} is larger than max_bytes: {size} bytes, {max_bytes} allowed."
            )
        return decode_weights(stream.read(), repr(name), checksum)


def holds_weights(path: str | os.PathLike[str]) -> bool:
    """Whether a file says of itself that it holds weights; nothing else is checked."""
    with open_regular(path) as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = stream.read(min(length, HEADER_LIMIT))
    return f'"format":"{_WEIGHTS_FIELDS["format"]}"'.encode() in header


def tensors_digest(tensors: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 over names, shapes and values: equal for equal tensors only."""
    header, payload = body(({}, dict(tensors)))
    return hashlib.sha256(header + payload).hexdigest()


def encode_weights(weights: Weights) -> bytes:
    """The bytes of a file."""
    return encode(_pack(weights), None, "")


def _pack(weights: Weights) -> Contents:
    metadata = {**_WEIGHTS_FIELDS, "kind": weights.kind}
    halves = {name: weights.tensors[name].astype(np.float16) for name in weights.half}
    tensors: dict[str, NDArray[Any]] = {
        **weights.tensors,
        **halves,
        _SPEC: _text_tensor(weights.spec),
        _CARD: _text_tensor(weights.card),
    }
    return metadata, tensors


def decode_weights(data: bytes, where: str, checksum: str | None) -> Weights:
    """The weights in the bytes of a file that messages call ``where``."""
    try:
        found = hashlib.sha256(data).hexdigest()
        if checksum is not None and found != checksum.lower():
            fail(
                f"is not the file that was asked for: its SHA-256 is {found[:12]}.., "
                f"expected {checksum[:12]}... It was damaged or changed; get the "
                "original file."
            )
        return _unpack(decode(io.BytesIO(data), len(data), None, len(data)))
    except (SketchFileError, UnsavableError) as error:
        raise SketchFileError(f"{where} {error}") from error.__cause__


def _unpack(contents: Contents) -> Weights:
    metadata, tensors = contents
    if metadata["format"] != _WEIGHTS_FIELDS["format"]:
        fail("holds a sketch or a map, not weights. Read it with sketchlearn.load.")
    require_fields(metadata, _WEIGHTS_FIELDS)
    learned = dict(tensors)
    spec, card = (_parsed_tensor(name, learned) for name in (_SPEC, _CARD))
    half = [name for name, array in learned.items() if array.dtype == np.float16]
    learned |= {name: learned[name].astype(np.float32) for name in half}
    weights = Weights(metadata["kind"], spec, learned, card, half=half)
    if body(_pack(weights)) != body(contents):
        fail("is not written the way save_weights writes; get the original file.")
    return weights


def _text_tensor(value: Mapping[str, Any]) -> NDArray[np.uint8]:
    return np.frombuffer(canonical_json(value).encode(), np.uint8)


def _parsed_tensor(name: str, tensors: dict[str, NDArray[Any]]) -> dict[str, Any]:
    array = tensors.pop(name, np.zeros(0))
    text = array.tobytes().decode("ascii", "replace")
    if array.dtype != np.uint8:
        raise damaged(name)
    return parse_canonical(text, name)


def _frozen(name: str, array: NDArray[Any]) -> NDArray[np.float32]:
    plain = re.fullmatch("[A-Za-z0-9_.]{1,128}", name) and name not in (_SPEC, _CARD)
    if not plain:
        raise UnsavableError(
            f"a tensor is named by up to 128 letters, digits, _ and .; got {name!r}."
        )
    if array.dtype != np.float32 or not np.isfinite(array).all():
        raise UnsavableError(
            f"tensor {name!r} must hold finite float32 numbers; got {array.dtype}"
            f"{'' if array.dtype != np.float32 else ' with infinities or NaN'}."
        )
    copy: NDArray[np.float32] = np.array(array + np.float32(0))  # -0.0 becomes 0.0
    copy.flags.writeable = False
    return copy


def _require_half(name: str, array: NDArray[np.float32] | None) -> None:
    """Refuse to round what is to be stored in half precision."""
    limit = np.finfo(np.float16).max
    if array is None or not (np.abs(array) <= limit).all():
        fits = False
    else:
        fits = np.array_equal(array, array.astype(np.float16))
    if not fits:
        raise UnsavableError(
            f"tensor {name!r} is to be stored in half precision and has other numbers. "
            "Round it first: array.astype(np.float16).astype(np.float32)."
        )


def _plain(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = json.loads(canonical_json(dict(value)))
        if not is_shallow(plain):
            raise ValueError("too many are inside one another")
    except (TypeError, ValueError, RecursionError) as error:
        raise UnsavableError(
            f"{name} must hold JSON values only (text, finite numbers, lists, "
            f"mappings): {error}."
        ) from error
    return plain
