r"""Pairwise masks: uniform numbers that hide each share and cancel in the sum.

Parties i and j make the same secret from their keys, and from it the same stream of
numbers modulo :math:`2^{128}`,

.. math::
    k_{ij} = \mathrm{HKDF}(\mathrm{X25519}(s_i, P_j), \text{digest of the terms},
    \text{names}), \qquad r_{ij} = \mathrm{ChaCha20}(k_{ij}),

which the one whose name comes first adds and the other subtracts. As the digest
covers the random name of the session, and a key makes one share for each session, no
stream is ever used twice.
"""

from __future__ import annotations

from typing import Any

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.arithmetic.modular import add_modulo, from_stream, subtract_modulo
from sketchlearn.errors import SessionError
from sketchlearn.files.container import canonical_json
from sketchlearn.parties.keys import PartyKey, import_cryptography
from sketchlearn.parties.session import Session

__all__ = ["mask_keys", "masked", "unmasked"]

_MASK_PURPOSE = "sketchlearn-mask 1"
"""What the secrets of two parties are used for, beside their names."""

_NUMBER_BYTES = 16
"""Of a number modulo 2**128."""


def mask_keys(session: Session, key: PartyKey) -> dict[str, bytes]:
    """The key of the stream that a party shares with each other one, by its name."""
    own = session.party_of(key)
    found = {}
    for other, public in session.parties:
        if other == own:
            continue
        try:
            shared = key.exchange(public)
        except SessionError as error:
            raise SessionError(f"of party {other!r}, {error}") from error
        found[other] = _derived(shared, session, sorted((own, other)))
    return found


def masked(numbers: Int128Array, own: str, keys: dict[str, bytes]) -> Int128Array:
    """Numbers under all masks of a party, modulo 2**128."""
    return _shifted(numbers, own, keys, (subtract_modulo, add_modulo))


def unmasked(numbers: Int128Array, own: str, keys: dict[str, bytes]) -> Int128Array:
    """Numbers that :func:`masked` hid, as they were."""
    return _shifted(numbers, own, keys, (add_modulo, subtract_modulo))


def _shifted(
    numbers: Int128Array, own: str, keys: dict[str, bytes], shifts: Any
) -> Int128Array:
    for other, key in keys.items():
        mask = from_stream(_stream(key, _NUMBER_BYTES * len(numbers)))
        numbers = shifts[own < other](numbers, mask)
    return numbers


def _derived(shared: bytes, session: Session, pair: list[str]) -> bytes:
    """A key for one pair, one session and one purpose."""
    hkdf = import_cryptography("primitives.kdf.hkdf").HKDF(
        algorithm=import_cryptography("primitives.hashes").SHA256(),
        length=32,
        salt=bytes.fromhex(session.digest),
        info=canonical_json([_MASK_PURPOSE, *pair]).encode(),
    )
    key: bytes = hkdf.derive(shared)
    return key


def _stream(key: bytes, size: int) -> bytes:
    """So many bytes of ChaCha20; each key makes a single stream, so no nonce."""
    ciphers = import_cryptography("primitives.ciphers")
    cipher: Any = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, bytes(16)), None)
    stream: bytes = cipher.encryptor().update(bytes(size))
    return stream
