"""Keys of parties: what any two of them make a secret from that nobody else knows.

X25519 (RFC 7748), by the package ``cryptography``. A key also knows the sessions to
which it has contributed, in its file and in this process: the secrets of a session
serve once. What they are for is not known here.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn, final

from sketchlearn.errors import SessionError, SketchFileError, import_extra
from sketchlearn.files.container import canonical_json
from sketchlearn.files.durable import (
    lock_file,
    open_regular,
    path_text,
    write_file,
)

__all__ = ["PartyKey", "import_cryptography", "require_public_key"]
__public__ = ["PartyKey"]

_KEY_FORMAT = "sketchlearn-party-key"
"""What a file of a key says it is."""

_KEY_FILE = re.compile(
    rf'\{{"format":"{_KEY_FORMAT}","secret":"([0-9a-f]{{64}})",'
    r'(?:"version":1|"sessions":\[([0-9a-f",]*)\],"version":2)\}\n'.encode()
)
"""A whole file of a key; the first version knew no sessions."""

_MOST_KEY_BYTES = 2**24
"""No key has been in so many sessions."""

_PRIME = 2**255 - 19
"""Public keys are numbers below it, so that each is written in one way."""

_KEY_BYTES, _SESSION_DIGITS = 32, 32


@final
@dataclass(frozen=True, repr=False, eq=False)
class PartyKey:
    """The secret key of one party, and the public key that goes with it.

    Keep it like the rows: whoever has it, and sees the shares, can take away the masks
    of this party. A key contributes to a session once, and its file says to which it
    has; so make no copies of the file, which would not know of one another.

    Parameters
    ----------
    secret : bytes
        32 secret bytes; :meth:`generate` draws them.

    Examples
    --------
    >>> north, south = PartyKey.generate(), PartyKey.generate()
    >>> len(north.public)
    64
    >>> north.exchange(south.public) == south.exchange(north.public)
    True
    """

    secret: bytes = field(repr=False)
    _files: set[str] = field(default_factory=set, init=False, repr=False)
    _process: int = field(default_factory=os.getpid, init=False, repr=False)

    def __post_init__(self) -> None:
        if type(self.secret) is not bytes or len(self.secret) != _KEY_BYTES:
            raise SessionError(
                "a party's key is made of 32 secret bytes; make one with "
                "PartyKey.generate(), or PartyKey.load(path)."
            )

    @classmethod
    def generate(cls) -> PartyKey:
        """A new key from the operating system's randomness."""
        return cls(os.urandom(_KEY_BYTES))

    @cached_property
    def public(self) -> str:
        """The public key in 64 hexadecimal digits: for the others, by a safe way.

        Whoever can exchange it on its way takes the place of this party.
        """
        key: bytes = self._private().public_key().public_bytes_raw()
        return key.hex()

    def exchange(self, public: str) -> bytes:
        """32 bytes that only this key and the other's secret key give."""
        require_public_key(public)
        keys = import_cryptography("primitives.asymmetric.x25519")
        other = keys.X25519PublicKey.from_public_bytes(bytes.fromhex(public))
        try:
            shared: bytes = self._private().exchange(other)
        except ValueError as error:  # all zero: a point of low order
            raise SessionError(
                f"the public key {public[:6]}.. gives the same secret with every key, "
                "so that it hides nothing. Ask its party for the one that "
                "PartyKey.public says."
            ) from error
        return shared

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the key to a file that its owner alone can read (mode 0600).

        The file knows the sessions of this key so far, and learns of those to which
        it contributes from now on.
        """
        self._require_own_process()
        name = os.path.realpath(path_text(path))
        sessions = {session for session, public in _USED if public == self._name}
        files = {*self._files, name} if os.path.exists(name) else self._files
        with ExitStack() as held:
            for one in sorted(files):
                sessions |= held.enter_context(self._locked(one))
            write_file(name, _key_text(self.secret, sessions))
        self._files.add(name)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PartyKey:
        """Read back what :meth:`save` wrote, or refuse the file."""
        name = path_text(path)
        secret, _ = _read_key(name)
        key = cls(secret)
        key._files.add(os.path.realpath(name))
        return key

    @contextmanager
    def once(self, session_id: str) -> Iterator[None]:
        """Make a share inside of this, the only one of this key for a session.

        Refused if there was one before. On leaving, the session is written to the
        file of the key and is on the disk before anybody gets the share; if making it
        failed, nothing is written.
        """
        self._require_own_process()
        mine = session_id, self._name
        with _USED_LOCK:
            if mine in _USED:
                raise _used()
            _USED.add(mine)
        try:
            with ExitStack() as held:
                texts = {
                    name: self._with_session(held, name, session_id)
                    for name in sorted(self._files)
                }
                yield
                for name, text in texts.items():
                    write_file(name, text)
        except BaseException:
            with _USED_LOCK:
                _USED.discard(mine)
            raise

    def _with_session(self, held: ExitStack, name: str, session_id: str) -> bytes:
        """What will be in a file of this key, which is held, with one session more."""
        sessions = held.enter_context(self._locked(name))
        if session_id in sessions:
            raise _used()
        return _key_text(self.secret, {*sessions, session_id})

    @contextmanager
    def _locked(self, name: str) -> Iterator[set[str]]:
        """Hold a file of this key; the sessions it knows."""
        try:
            descriptor = lock_file(name)
        except OSError as error:
            raise SessionError(
                f"the key file {name!r} cannot be changed ({error.strerror}), and a "
                "key writes down to which sessions it has contributed. Nothing was "
                "made or spent. Load the key from where it is now, on a local disk "
                "that can be written to."
            ) from error
        with open(descriptor, "rb") as stream:
            secret, sessions = _parse_key(stream.read(_MOST_KEY_BYTES), name)
            if secret != self.secret:
                raise SessionError(
                    f"the key file {name!r} holds another key by now. Nothing was made "
                    "or spent. Load the key from where it is."
                )
            yield sessions

    @cached_property
    def _name(self) -> bytes:
        """What this key is called among those that this process has used."""
        return hashlib.sha256(self.secret).digest()

    def _require_own_process(self) -> None:
        if not self._files and self._process != os.getpid():
            raise SessionError(
                "this key is in memory only and belongs to the process that made it: "
                "after a fork two processes could contribute to one session. Nothing "
                "was made or spent. Write it to a file before the fork: key.save(path)."
            )

    def _private(self) -> Any:
        keys = import_cryptography("primitives.asymmetric.x25519")
        return keys.X25519PrivateKey.from_private_bytes(self.secret)

    def __repr__(self) -> str:
        return f"PartyKey(public={self.public[:6]}..)"

    def __reduce__(self) -> NoReturn:
        raise SessionError(
            "the key of a party is not copied or pickled, since it is a secret. Write "
            "it to a file of its own: key.save(path)."
        )


_USED: set[tuple[str, bytes]] = set()
"""Sessions and keys of the shares that this process has made."""

_USED_LOCK = threading.Lock()


def _renew_lock() -> None:
    """Give a forked process a lock that no thread of another one holds."""
    global _USED_LOCK
    _USED_LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def _used() -> SessionError:
    return SessionError(
        "this key has contributed to this session before: two shares under the same "
        "masks would show the difference of two sketches. Nothing was made or spent. "
        "Send the share that was made again, if you have it; else start a new one "
        "with session.renewed(), to which everybody contributes."
    )


def _read_key(name: str) -> tuple[bytes, set[str]]:
    with open_regular(name) as stream:
        return _parse_key(stream.read(_MOST_KEY_BYTES), name)


def _parse_key(text: bytes, name: str) -> tuple[bytes, set[str]]:
    """The secret in a file of a key, and the sessions of that key."""
    found = _KEY_FILE.fullmatch(text)
    secret = bytes.fromhex(found[1].decode()) if found else b""
    sessions = set(re.findall("[0-9a-f]+", (found and found[2] or b"").decode()))
    plain = found and (found[2] is None or text == _key_text(secret, sessions))
    if not plain or not {len(one) for one in sessions} <= {_SESSION_DIGITS}:
        raise SketchFileError(
            f"{name!r} is not the key of a party. Load a file made by PartyKey.save."
        )
    return secret, sessions


def _key_text(secret: bytes, sessions: Iterable[str]) -> bytes:
    words = {"format": _KEY_FORMAT, "version": 2, "secret": secret.hex()}
    return f"{canonical_json({**words, 'sessions': sorted(sessions)})}\n".encode()


def require_public_key(public: Any) -> None:
    """Refuse what no :attr:`PartyKey.public` says."""
    plain = type(public) is str and re.fullmatch("[0-9a-f]{64}", public)
    if not plain or int.from_bytes(bytes.fromhex(public), "little") >= _PRIME:
        got = f"{public[:12]}.." if type(public) is str else type(public).__name__
        raise SessionError(
            f"a public key has 64 hexadecimal digits, as PartyKey.public says; got "
            f"{got!r}."
        )


def import_cryptography(module: str) -> Any:
    """A module of ``cryptography.hazmat``, or how to install it."""
    return import_extra(f"cryptography.hazmat.{module}", "secure")
