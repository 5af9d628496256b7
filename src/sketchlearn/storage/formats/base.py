"""A format: how one kind of object becomes the fields and tensors of a file.

A module of this folder with a subclass of :class:`AbstractFormat` makes one more kind
of object that can be saved: nothing else has to know of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from sketchlearn.discovery import classes_declaring
from sketchlearn.files.container import Contents
from sketchlearn.storage.headers import Tensors

__all__ = ["AbstractFormat", "all_formats"]


class AbstractFormat(ABC):
    """How objects of one class are written and read back.

    Attributes
    ----------
    stored : type
        The class, or the base of the classes. Where several formats have it, each
        of its objects is taken by one of them.
    format : str
        Field ``format`` of their files.
    kinds : tuple of str
        What the field ``kind`` of these files may be; empty text where there is none.
        No other format has one of them.
    fields : mapping
        Pattern of each field. A file has these fields and no others.
    """

    stored: ClassVar[type[Any]]
    format: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]]
    fields: ClassVar[Mapping[str, str]]

    def takes(self, obj: Any) -> bool:
        """Whether this is the format in which an object is written."""
        return isinstance(obj, self.stored)

    @abstractmethod
    def pack(self, obj: Any) -> Contents:
        """Fields and tensors of an object; equal objects give equal ones."""

    @abstractmethod
    def unpack(
        self, fields: Mapping[str, str], tensors: Tensors, max_bytes: int
    ) -> Any:
        """The object again, or SketchFileError.

        Parameters
        ----------
        fields, tensors : mappings
            What was read; the fields have their patterns, nothing else is known.
        max_bytes : int
            Refuse what takes more memory to build.
        """


@cache
def all_formats() -> tuple[AbstractFormat, ...]:
    """One of each format in this folder."""
    found = classes_declaring("kinds", "sketchlearn.storage.formats")
    return tuple(cls() for cls in found.values())
