"""Keys of parties: what any two of them make a secret from that nobody else knows.

X25519 (RFC 7748), by the package ``cryptography``. What the secrets are for is not
known here.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn, final

from sketchlearn.errors import SessionError, SketchFileError, import_extra
from sketchlearn.files.container import canonical_json
from sketchlearn.files.durable import open_regular, path_text, write_file

__all__ = ["PartyKey", "import_cryptography", "require_public_key"]
__public__ = ["PartyKey"]

_KEY_FORMAT = "sketchlearn-party-key"
"""What a file of a key says it is."""

_KEY_FILE = re.compile(
    rf'\{{"format":"{_KEY_FORMAT}","secret":"([0-9a-f]{{64}})","version":1\}}\n'.encode()
)
"""A whole file of a key."""

_PRIME = 2**255 - 19
"""Public keys are numbers below it, so that each is written in one way."""

_KEY_BYTES = 32


@final
@dataclass(frozen=True, repr=False, eq=False)
class PartyKey:
    """The secret key of one party, and the public key that goes with it.

    Keep it like the rows: whoever has it, and sees the shares, can take away the masks
    of this party.

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
        """Write the key to a file that its owner alone can read (mode 0600)."""
        words = {"format": _KEY_FORMAT, "version": 1, "secret": self.secret.hex()}
        write_file(path, f"{canonical_json(words)}\n".encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PartyKey:
        """Read back what :meth:`save` wrote, or refuse the file."""
        name = path_text(path)
        with open_regular(name) as stream:
            text = stream.read(1024)
        found = _KEY_FILE.fullmatch(text)
        if found is None:
            raise SketchFileError(
                f"{name!r} is not the key of a party. Load a file made by "
                "PartyKey.save."
            )
        return cls(bytes.fromhex(found[1].decode()))

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
