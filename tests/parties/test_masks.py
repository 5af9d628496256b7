"""Masks cancel in the sum of all parties, and hide everything in any other."""

import hashlib
import hmac
import json

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import x25519
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from parties.sums import PHI, PROMISE, make_keys, start
from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.arithmetic.modular import add_modulo, subtract_modulo
from sketchlearn.errors import SessionError
from sketchlearn.parties.masks import mask_keys, masked
from sketchlearn.parties.session import Session

MODULUS = 2**128
KEYS = make_keys([f"p{i}" for i in range(7)])


def signed(value):
    """The number of 128 bits that is congruent to a value."""
    return (value + MODULUS // 2) % MODULUS - MODULUS // 2


def independent_share(session, name, key, values):
    """The same in plain Python integers, HKDF written out (RFC 5869)."""
    secret = x25519.X25519PrivateKey.from_private_bytes(key.secret)
    shared = list(values)
    for other, public in session.parties:
        if other == name:
            continue
        point = x25519.X25519PublicKey.from_public_bytes(bytes.fromhex(public))
        first, second = sorted((name, other))
        info = json.dumps(["sketchlearn-mask 1", first, second], separators=(",", ":"))
        salt = bytes.fromhex(session.digest)
        extracted = hmac.digest(salt, secret.exchange(point), hashlib.sha256)
        derived = hmac.digest(extracted, info.encode() + b"\x01", hashlib.sha256)
        cipher = Cipher(algorithms.ChaCha20(derived, bytes(16)), None).encryptor()
        for i in range(len(shared)):
            mask = int.from_bytes(cipher.update(bytes(16)), "little")
            shared[i] += mask if name == first else -mask
    return [signed(value) for value in shared]


def test_masks_are_those_of_an_independent_implementation():
    session = start(KEYS, **PROMISE)
    values = [0, 1, -1, 2**126, -(2**127), 2**127 - 1, 12345]
    for name, key in KEYS.items():
        ours = masked(Int128Array.from_ints(values), name, mask_keys(session, key))
        assert ours.to_ints() == independent_share(session, name, key, values)


numbers = st.integers(-(2**127), 2**127 - 1) | st.sampled_from(
    [0, -1, 2**64, -(2**64), 2**126, -(2**126), 2**126 - 1, 2**127 - 1, -(2**127)]
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_sum_of_masked_numbers_is_the_sum_of_the_numbers(data):
    names = data.draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=2, unique=True))
    size = data.draw(st.integers(1, 4))
    row = st.lists(numbers, min_size=size, max_size=size)
    keys = {name: KEYS[name] for name in names}
    session = start(keys)
    whole, plain = Int128Array.zeros(size), [0] * size
    for name, key in keys.items():
        values = data.draw(row)
        plain = [a + b for a, b in zip(plain, values, strict=True)]
        mine = masked(Int128Array.from_ints(values), name, mask_keys(session, key))
        whole = add_modulo(whole, mine)
    assert whole.to_ints() == [signed(value) for value in plain]


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=5))
def test_sums_wrap_as_integers_modulo_two_to_the_128(pairs):
    left, right = (Int128Array.from_ints(side) for side in zip(*pairs, strict=True))
    assert add_modulo(left, right).to_ints() == [signed(a + b) for a, b in pairs]
    assert subtract_modulo(left, right).to_ints() == [signed(a - b) for a, b in pairs]


@pytest.mark.parametrize("left_out", range(7))
def test_any_sum_but_the_whole_one_is_uniform(left_out):
    session, size = start(KEYS), 4096
    whole = Int128Array.zeros(size)
    for i, (name, key) in enumerate(KEYS.items()):
        if i != left_out:
            mine = masked(Int128Array.zeros(size), name, mask_keys(session, key))
            whole = add_modulo(whole, mine)
    found = np.bincount(np.frombuffer(whole.tobytes(), np.uint8), minlength=256)
    assert chisquare(found).pvalue > 1e-6


def test_every_pair_every_session_and_every_purpose_has_its_own_key():
    sessions = [start(KEYS), start(KEYS), start(KEYS, **PROMISE)]
    found = {
        frozenset((name, other)): stream
        for session in sessions
        for name, key in KEYS.items()
        for other, stream in mask_keys(session, key).items()
    }
    streams = {
        stream
        for session in sessions
        for key in KEYS.values()
        for stream in mask_keys(session, key).values()
    }
    assert len(found) == 21
    assert len(streams) == 3 * 21


def test_a_public_key_that_hides_nothing_is_named_with_its_party():
    public = {"north": KEYS["p0"].public, "south": (1).to_bytes(32, "little").hex()}
    session = Session.start(PHI, public, **PROMISE)
    with pytest.raises(SessionError, match="of party 'south'.*hides nothing"):
        mask_keys(session, KEYS["p0"])
