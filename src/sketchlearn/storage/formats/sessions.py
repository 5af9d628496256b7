"""Sessions in files: the terms that every party must have to the bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from typing_extensions import override

from sketchlearn.files.container import Contents
from sketchlearn.parties.session import Session
from sketchlearn.storage.formats.base import AbstractFormat
from sketchlearn.storage.headers import Tensors
from sketchlearn.storage.terms import SESSION_TEXT, session_of, session_text

__all__ = ["SessionFormat"]


@final
class SessionFormat(AbstractFormat):
    """The terms, and nothing else."""

    stored, kinds, format = Session, ("terms",), "sketchlearn-session"
    fields = {"format": format, "version": "1", "kind": "terms"}

    @override
    def pack(self, obj: Session) -> Contents:
        return dict(self.fields), {SESSION_TEXT: session_text(obj)}

    @override
    def unpack(
        self, fields: Mapping[str, str], tensors: Tensors, max_bytes: int
    ) -> Session:
        return session_of(tensors)
