"""Terms: a session as a text among the tensors of a file.

A text of its own, since a thousand parties would crowd a header. Session files hold it
alone, files of shares beside their numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchlearn.files.container import canonical_json, damaged, parse_canonical
from sketchlearn.parties.session import Session
from sketchlearn.storage.headers import Tensors

__all__ = ["SESSION_TEXT", "session_of", "session_text"]

SESSION_TEXT = "session.json"
"""Name of the tensor."""


def session_text(session: Session) -> NDArray[Any]:
    """The terms as bytes of canonical JSON."""
    return np.frombuffer(canonical_json(session.describe()).encode(), np.uint8)


def session_of(tensors: Tensors) -> Session:
    """The session whose terms these are."""
    text = tensors.get(SESSION_TEXT, np.zeros(0, np.uint8))
    if text.dtype != np.uint8 or text.ndim != 1:
        raise damaged("terms of the session")
    words = text.tobytes().decode("ascii", "replace")
    return Session.from_description(parse_canonical(words, "terms of the session"))
