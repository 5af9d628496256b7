"""Two keys make one secret, a key is its owner's, and what hides nothing is refused."""

import copy
import pickle
import sys

import pytest

from sketchlearn.errors import (
    MissingExtraError,
    MissingFileError,
    SessionError,
    SketchFileError,
)
from sketchlearn.parties import keys
from sketchlearn.parties.keys import PartyKey

ALICE = PartyKey(
    bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
)
BOB = PartyKey(
    bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
)
SECRET = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
PRIME = 2**255 - 19


def encoded(number):
    return number.to_bytes(32, "little").hex()


def test_keys_and_secrets_are_those_of_rfc_7748():
    assert ALICE.public == (
        "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    )
    assert ALICE.exchange(BOB.public) == bytes.fromhex(SECRET)
    assert BOB.exchange(ALICE.public) == bytes.fromhex(SECRET)


def test_no_two_keys_are_the_same():
    assert len({PartyKey.generate().public for _ in range(20)}) == 20


@pytest.mark.parametrize("point", [0, 1, PRIME - 1])
def test_a_point_of_low_order_is_refused(point):
    with pytest.raises(SessionError, match="hides nothing"):
        ALICE.exchange(encoded(point))


@pytest.mark.parametrize(
    "public",
    [encoded(PRIME), encoded(2**255 + 9), BOB.public.upper(), "ab", b"x" * 32, None],
)
def test_a_public_key_is_written_in_one_way(public):
    with pytest.raises(SessionError, match="64 hexadecimal digits"):
        ALICE.exchange(public)


@pytest.mark.parametrize("secret", [b"", b"x" * 31, "x" * 32, bytearray(32)])
def test_a_key_is_32_secret_bytes(secret):
    with pytest.raises(SessionError, match="32 secret bytes"):
        PartyKey(secret)


def test_a_saved_key_comes_back_and_is_its_owners_alone(tmp_path):
    PartyKey(ALICE.secret).save(tmp_path / "alice.key")
    assert PartyKey.load(tmp_path / "alice.key").secret == ALICE.secret
    assert (tmp_path / "alice.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("change", [b"", b" ", b"x", b"\n"])
def test_a_damaged_key_is_refused(tmp_path, change):
    path = tmp_path / "alice.key"
    PartyKey(ALICE.secret).save(path)
    path.write_bytes(path.read_bytes()[: -1 if change == b"" else None] + change)
    with pytest.raises(SketchFileError, match="not the key of a party") as caught:
        PartyKey.load(path)
    assert ALICE.secret.hex() not in str(caught.value)


def test_a_key_of_the_first_version_comes_back_and_learns(tmp_path):
    path = tmp_path / "alice.key"
    secret = ALICE.secret.hex()
    old = f'{{"format":"sketchlearn-party-key","secret":"{secret}","version":1}}\n'
    path.write_text(old)
    key = PartyKey.load(path)
    assert key.secret == ALICE.secret
    with key.once("ab" * 16):
        assert path.read_text() == old
    assert '"sessions":["' + "ab" * 16 + '"],"version":2' in path.read_text()
    assert PartyKey.load(path).secret == ALICE.secret


def test_a_file_that_is_saved_again_keeps_its_sessions(tmp_path, monkeypatch):
    path = tmp_path / "key"
    key = PartyKey.generate()
    with key.once("01" * 16):
        pass
    key.save(path)  # made in memory before
    with key.once("02" * 16):
        pass
    monkeypatch.setattr(keys, "_USED", set())
    PartyKey(key.secret).save(path)
    for session in ("01", "02"):
        with (
            pytest.raises(SessionError, match="before"),
            PartyKey.load(path).once(16 * session),
        ):
            pass


@pytest.mark.parametrize(
    "sessions", ['"' + "0" * 31 + '"', '"b","a"', '"' + "g" * 32 + '"', ",", '"']
)
def test_sessions_that_make_no_sense_are_refused(tmp_path, sessions):
    path = tmp_path / "new.key"
    PartyKey.generate().save(path)
    path.write_text(path.read_text().replace("[]", f"[{sessions}]"))
    with pytest.raises(SketchFileError, match="not the key of a party"):
        PartyKey.load(path)


def test_a_missing_key_is_missing(tmp_path):
    with pytest.raises(MissingFileError):
        PartyKey.load(tmp_path / "no.key")


def test_a_secret_is_neither_shown_nor_copied():
    assert ALICE.secret.hex() not in repr(ALICE)
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(SessionError, match=r"key\.save"):
            way(ALICE)


def test_without_cryptography_it_says_what_to_install(monkeypatch):
    module = "cryptography.hazmat.primitives.asymmetric.x25519"
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=r"sketchlearn\[secure\]"):
        _ = PartyKey.generate().public


def test_a_key_that_is_saved_anew_keeps_the_sessions_of_the_file_it_came_from(tmp_path):
    PartyKey.generate().save(tmp_path / "a.key")
    with PartyKey.load(tmp_path / "a.key").once("5" * 32):
        pass
    keys._USED.clear()  # another process
    PartyKey.load(tmp_path / "a.key").save(tmp_path / "b.key")
    with (
        pytest.raises(SessionError, match="contributed to this session before"),
        PartyKey.load(tmp_path / "b.key").once("5" * 32),
    ):
        pass


def test_the_file_of_another_key_is_not_replaced(tmp_path):
    other = PartyKey.generate()
    other.save(tmp_path / "a.key")
    with pytest.raises(SessionError, match="another key"):
        PartyKey.generate().save(tmp_path / "a.key")
    assert PartyKey.load(tmp_path / "a.key").secret == other.secret
