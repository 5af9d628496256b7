"""Files: sketches and feature maps, written whole and read with suspicion.

How bytes are laid out is :mod:`sketchlearn.files.container`'s concern, how they reach
the disk :mod:`sketchlearn.files.durable`'s, and what each kind of object is in a file
that of a module of ``sketchlearn.storage.formats``. Here the four functions of users
bring them together; what was built must encode to the bytes that were read.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any, BinaryIO

from sketchlearn.errors import SketchFileError, UnsavableError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.files.container import (
    MAX_BYTES,
    Contents,
    body,
    decode,
    encode,
    fail,
    require_fields,
    require_key,
)
from sketchlearn.files.durable import open_regular, path_text, write_file
from sketchlearn.parties.session import Session
from sketchlearn.parties.shares import Share
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch
from sketchlearn.storage.formats.base import all_formats

__all__ = ["dumps", "load", "loads", "save"]
__public__ = ["dumps", "load", "loads", "save"]


def save(
    obj: Sketch | PrivateSketch | AbstractFeatureMap | Session | Share,
    path: str | os.PathLike[str],
    *,
    key: bytes | None = None,
    key_id: str = "",
) -> None:
    """Write a sketch, a map, a session or a share to a file, all of it or nothing.

    The bytes go to a temporary file beside ``path``, reach the disk, and only then
    take the name: after a crash or a full disk the old file is still there, whole.
    The file can be read by its owner only (mode 0600, whatever the umask), because
    an exact sketch is as sensitive as its rows. A symbolic link is followed.

    Parameters
    ----------
    obj : Sketch, PrivateSketch, AbstractFeatureMap, Session or Share
        What to save.
    path : path
        Where; an existing file is replaced.
    key : bytes, optional
        At least 16 secret bytes. Only who has the key can then write or change the
        file unnoticed, and only who has it can load the file.
    key_id : str
        Which key it was: up to 32 letters, digits, ``-`` and ``_``, kept in clear.

    Examples
    --------
    >>> import tempfile
    >>> from sketchlearn.features.fourier import FourierFeatures
    >>> phi = FourierFeatures(n_features=2, sketch_size=8, seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(phi, f"{folder}/phi.map")
    ...     load(f"{folder}/phi.map") == phi
    True
    """
    write_file(path, dumps(obj, key=key, key_id=key_id))


def load(
    path: str | os.PathLike[str],
    *,
    key: bytes | None = None,
    feature_map: AbstractFeatureMap | None = None,
    max_bytes: int = MAX_BYTES,
) -> Any:
    """Read back what :func:`save` wrote, or refuse the file.

    Parameters
    ----------
    path : path
        A regular file.
    key : bytes, optional
        The key the file was saved with. A file without one is then refused.
    feature_map : AbstractFeatureMap, optional
        The map of the sketch or share, to be checked and attached to it.
    max_bytes : int
        Refuse larger files, and maps that take more memory to build.

    Returns
    -------
    Sketch, PrivateSketch, AbstractFeatureMap, Session or Share
        As the file says. Without a key the digest finds damage, not deceit.
    """
    name = path_text(path)
    with open_regular(name) as stream:
        size = os.fstat(stream.fileno()).st_size
        return _parse(stream, size, repr(name), key, feature_map, max_bytes)


def dumps(
    obj: Sketch | PrivateSketch | AbstractFeatureMap | Session | Share,
    *,
    key: bytes | None = None,
    key_id: str = "",
) -> bytes:
    """Give the bytes :func:`save` would write, for a database or a message."""
    require_key(key, key_id)
    fitting = [one for one in all_formats() if one.takes(obj)]
    if not fitting:
        raise UnsavableError(
            f"cannot save a {type(obj).__name__}. What can be saved: "
            f"{', '.join(sorted({one.stored.__name__ for one in all_formats()}))}."
        )
    try:
        contents = fitting[0].pack(obj)
        _unpack(contents, sys.maxsize)  # what cannot be read is not written
        return encode(contents, key, key_id)
    except SketchFileError as error:
        raise SketchFileError(
            f"this {type(obj).__name__} cannot be saved: its file {error}"
        ) from error


def loads(
    data: bytes,
    *,
    key: bytes | None = None,
    feature_map: AbstractFeatureMap | None = None,
    max_bytes: int = MAX_BYTES,
) -> Any:
    """Read bytes made by :func:`dumps`; arguments and errors as for :func:`load`."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise SketchFileError(
            f"loads reads the bytes that dumps made; got a {type(data).__name__}. Read "
            "a file with load(path)."
        )
    stream = io.BytesIO(data)
    return _parse(stream, len(data), "this byte string", key, feature_map, max_bytes)


def _parse(
    stream: BinaryIO,
    size: int,
    where: str,
    key: bytes | None,
    feature_map: AbstractFeatureMap | None,
    max_bytes: int,
) -> Any:
    require_key(key, "")
    try:
        obj = _unpack(decode(stream, size, key, max_bytes), max_bytes)
        if feature_map is None:
            return obj
        if isinstance(obj, AbstractFeatureMap):
            fail("holds a feature map, not a sketch: load it without feature_map=.")
        if isinstance(obj, Session):
            fail("holds a session, not a sketch: load it without feature_map=.")
        return obj.with_map(feature_map)
    except SketchFileError as error:
        raise SketchFileError(f"{where} {error}") from error.__cause__


def _unpack(contents: Contents, max_bytes: int) -> Any:
    metadata, tensors = contents
    name = metadata["format"], metadata.get("kind", "")
    known = {(one.format, kind): one for one in all_formats() for kind in one.kinds}
    if name not in known:
        fail(f"holds an unknown kind of object {str(name)[:80]}; update sketchlearn.")
    require_fields(metadata, known[name].fields)
    try:
        obj = known[name].unpack(metadata, tensors, max_bytes)
        again = body(known[name].pack(obj))
    except (SketchFileError, ImportError):
        raise
    except Exception as error:  # any file may hold any arguments of any map
        raise SketchFileError(
            f"holds what cannot be built: {str(error)[:400]} Get the original file."
        ) from error
    if again != body(contents):
        fail("is not written the way save writes; get the original file.")
    return obj
