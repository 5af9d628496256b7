"""URLs: the files meant by one, wherever fsspec can read them.

fsspec is imported for URLs alone, and brings the packages of each scheme itself.
Passwords and queries of a URL, which may be signatures, stay out of messages.
"""

from __future__ import annotations

import difflib
import glob
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.request import url2pathname

from sketchlearn.errors import (
    MissingExtraError,
    MissingFileError,
    RowsError,
    SketchlearnError,
    import_extra,
)
from sketchlearn.rows.data_file import (
    DataFile,
    readable_names,
    refuse_suffix,
    suffix_of,
)

__all__ = ["is_url", "local_path", "shown", "url_files"]

_URL = re.compile(r"([a-z][a-z0-9+.\-]+::)*[a-z][a-z0-9+.\-]+://", re.IGNORECASE)
_WEB = re.compile(r"(.*::)?https?://", re.IGNORECASE)
_LOCAL = re.compile(r"file://(localhost(?=/))?", re.IGNORECASE)


def is_url(text: str) -> bool:
    r"""Whether a text begins with a scheme; drives such as ``C:\`` are none.

    Examples
    --------
    >>> [is_url(text) for text in ("s3://b/x.csv", "C:/x.csv", "C:\\x.csv", "a/x.csv")]
    [True, False, False, False]
    """
    return _URL.match(text) is not None


def local_path(url: str) -> str | None:
    """The path of a ``file://`` URL; None for others.

    Examples
    --------
    >>> local_path("file:///data/my%20rows/*.csv"), local_path("s3://b/x.csv")
    ('/data/my rows/*.csv', None)
    """
    scheme = _LOCAL.match(url)
    if scheme is None:
        return None
    path = url[scheme.end() :]
    return path if os.path.exists(path) else url2pathname(path)


def shown(text: str) -> str:
    """A path or URL as messages may show it.

    Examples
    --------
    >>> shown("https://me:secret@host/x.parquet?sig=secret")
    'https://host/x.parquet'
    >>> shown("s3://bucket/you@home/x.csv")
    's3://bucket/you@home/x.csv'
    """
    if not is_url(text):
        return text
    # A password may have any character, but is no number of a port.
    text = re.sub(r"://[^/@:?#]*:(?!\d+/)[^?#]*@|://[^/?#]*@", "://", text)
    query = r"[?#].*$" if _WEB.match(text) else r"\?.*=.*$"
    return re.sub(query, "", text, flags=re.DOTALL)


def url_files(url: str) -> list[DataFile]:
    """Find the files meant by a URL: of a file, a folder or a glob.

    Parameters
    ----------
    url : str
        A web address means one file; there are no globs and folders on the web.

    Returns
    -------
    list of DataFile
        At least one, sorted.
    """
    system, path = _connect(url)
    with _reaching(url):
        system.invalidate_cache()  # listings of before may be out of date
        about = _about(system, path)
        if about is not None and about["type"] == "directory":
            entries = system.ls(path, detail=True)
            named = {_last(e["name"]): e["name"] for e in entries if _is_file(e)}
            return [
                _data_file(system, named[name])
                for name in readable_names(shown(url), named)
            ]
        if about is not None:
            return [_data_file(system, path, url)]
        if glob.has_magic(path) and not _WEB.match(url):
            found = system.glob(path, detail=True)
            paths = sorted(path for path, entry in found.items() if _is_file(entry))
            if paths:
                return [_data_file(system, path) for path in paths]
        raise MissingFileError(_missing_text(system, path, url))


def _connect(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path there."""
    fsspec = import_extra("fsspec", "remote")
    try:
        system, path = fsspec.url_to_fs(url)
    except ImportError as error:
        package = getattr(error.__cause__, "name", None) or "PACKAGE"
        raise MissingExtraError(
            f"cannot read {shown(url)!r}: {error}. Install it with: "
            f"pip install {package}"
        ) from error
    except ValueError as error:
        raise RowsError(
            f"cannot read {shown(url)!r}: fsspec knows no such scheme or address. Pass "
            "a path, or a URL such as 's3://bucket/rows.parquet'."
        ) from error
    except Exception as error:  # each file system has its own
        raise _unreachable(url, error) from error
    return system, str(path)


@contextmanager
def _reaching(url: str) -> Iterator[None]:
    """Turn errors of a file system into one that names the URL."""
    try:
        yield
    except SketchlearnError:
        raise
    except Exception as error:  # each file system has its own
        raise _unreachable(url, error) from error


def _unreachable(url: str, error: Exception) -> RowsError:
    return RowsError(
        f"cannot reach {shown(url)!r} ({type(error).__name__}). Check the address, "
        "your access to it and the connection, and try again."
    )


def _about(system: Any, path: str) -> Any:
    try:
        return system.info(path)
    except FileNotFoundError:
        return None


def _data_file(system: Any, path: str, url: str | None = None) -> DataFile:
    address = system.unstrip_protocol(path) if url is None else url
    text, name = shown(address), _last(shown(path))
    if not suffix_of(name):
        refuse_suffix(text)
    return DataFile(address, text, name, (system, path), partial(_fetch, system, path))


def _fetch(system: Any, path: str, cache: str) -> Any:
    file = system.open(path, "rb", cache_type=cache)
    if isinstance(file, io.BytesIO):  # in memory, all readers would share one position
        return io.BytesIO(file.getvalue())
    return file


def _is_file(entry: Any) -> bool:
    return bool(entry["type"] == "file")


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _missing_text(system: Any, path: str, url: str) -> str:
    text = f"no file {shown(url)!r}"
    if _WEB.match(url):
        return f"{text}. Check the address; on the web there are no globs and folders."
    folder = path.rstrip("/").rpartition("/")[0]
    try:
        names = [_last(entry) for entry in system.ls(folder, detail=False)]
    except OSError:
        return f"{text}: its folder is missing."
    close = difflib.get_close_matches(_last(path), names, 1, 0.5)
    return f"{text}; did you mean {close[0]!r}?" if close else f"{text}. Check the URL."
