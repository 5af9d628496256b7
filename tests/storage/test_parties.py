"""Sessions and shares come back from files to the bit, or are refused with a reason."""

import hashlib
import pickle
import random
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from parties.sums import (
    NAMES,
    PHI,
    PROMISE,
    all_shares,
    make_keys,
    make_sketches,
    start,
)
from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import SessionError, SketchFileError
from sketchlearn.features.clipping import clipped
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.features.nystrom import NystromFeatures
from sketchlearn.files.container import encode
from sketchlearn.parties.combine import combine
from sketchlearn.parties.keys import PartyKey
from sketchlearn.parties.session import Session
from sketchlearn.parties.shares import Share, contribute
from sketchlearn.storage.formats.sessions import SessionFormat
from sketchlearn.storage.formats.shares import ShareFormat
from sketchlearn.storage.sketches import dumps, load, loads, save
from sketchlearn.testing import contribute_seeded

SECRETS = [bytes([i]) * 32 for i in (1, 2, 3)]
KEYS = {name: PartyKey(s) for name, s in zip(NAMES, SECRETS, strict=True)}
SKETCHES = make_sketches()
SESSION = replace(start(KEYS, **PROMISE, n_honest=2), session_id="0123456789abcdef" * 2)


@pytest.fixture(scope="module")
def shares():
    return all_shares(start(KEYS, **PROMISE), KEYS, SKETCHES)


def resign(data):
    start = data.index(b'"digest":"sha256:') + 17
    blank = data[:start] + b"0" * 64 + data[start + 64 :]
    digest = hashlib.sha256(blank).hexdigest().encode()
    return data[:start] + digest + data[start + 64 :]


@pytest.mark.parametrize(
    "terms",
    [{}, PROMISE, {**PROMISE, "neighbours": "replace", "rows_per_unit": 7}],
    ids=["exact", "private", "groups"],
)
def test_a_session_comes_back_the_same(tmp_path, terms):
    session = start(KEYS, **terms)
    save(session, tmp_path / "study.session")
    back = load(tmp_path / "study.session")

    assert back == session
    assert back.digest == session.digest
    assert dumps(back) == dumps(session)


def test_a_session_of_many_parties_fits_in_a_file():
    public = {f"party-{i}": f"{9 + i:04x}{0:060x}" for i in range(4096)}
    session = Session.start(PHI, public, **PROMISE)
    assert loads(dumps(session)) == session


def sha256(obj):
    return hashlib.sha256(dumps(obj)).hexdigest()


def test_terms_masks_and_files_stay_what_they_were():
    """Parties of different versions must agree on them to the bit."""
    exact = replace(start(KEYS), session_id="fedcba9876543210" * 2)
    sketch = sketch_rows([[0.5, -0.25, 0.125, 0.0]], PHI)
    share = contribute(sketch, exact, KEYS["north"])

    assert (
        SESSION.digest
        == "9df1ff94d5a4d877dedb34e0b914e6b34336019e37670096b7a375b3d6671c41"
    )
    assert (
        sha256(SESSION)
        == "d0ef612993ed2bb52742b770ebd4cd0e25e0846f8e7e6ec79de8358707240438"
    )
    assert (
        sha256(share)
        == "e065e59bcc83a24a5389ed61577a020a30f543328b4e5e2989ee173bf77ef0c6"
    )


def test_shares_come_back_the_same_and_add_up(shares, tmp_path):
    for share in shares:
        save(share, tmp_path / f"{share.party}.share")
    back = [load(tmp_path / f"{name}.share") for name in NAMES]

    assert combine(back).total == combine(shares).total
    assert combine(back).statement == combine(shares).statement
    for share, again in zip(shares, back, strict=True):
        assert (again.session, again.party) == (share.session, share.party)
        assert again.masked == share.masked
        assert again.features == share.features
        assert dumps(again) == dumps(share) == dumps(pickle.loads(pickle.dumps(share)))


def test_columns_and_long_descriptions_come_along():
    width = 3000
    names = tuple(f"column {i}" for i in range(width))
    phi = clipped(MomentFeatures(width, order="mean"), norm_bound=1.0)
    phi = phi.with_columns(names)
    sketch = sketch_rows(np.zeros((2, width)), phi)
    sketches = {name: sketch.with_new_lineage() for name in NAMES}
    made = all_shares(start(KEYS, phi, **PROMISE), KEYS, sketches)
    back = loads(dumps(made[0]))

    assert back.columns == made[0].columns == sketch.columns
    assert back.features == made[0].features


def test_a_map_that_is_no_text_is_attached_to_a_share():
    phi = NystromFeatures([[0.0, 1.0, 0.5, 0.2]] * 2 + [[1.0, 1.0, 0.0, 0.0]])
    sketch = sketch_rows(np.ones((5, 4)), phi)
    sketches = {name: sketch.with_new_lineage() for name in NAMES}
    made = all_shares(start(KEYS, phi), KEYS, sketches)
    with_map = [loads(dumps(one), feature_map=phi) for one in made]

    assert combine(with_map).source_map is phi
    assert combine([loads(dumps(one)) for one in made]) == sum(sketches.values())


def test_a_session_has_no_map_to_attach():
    with pytest.raises(SketchFileError, match="holds a session, not a sketch"):
        loads(dumps(SESSION), feature_map=PHI)


def test_test_doubles_have_a_kind_of_their_own():
    double = contribute_seeded(SKETCHES["north"], SESSION, KEYS["north"], seed=0)
    data = dumps(double)
    assert b'"kind":"test"' in data
    assert loads(data).seeded


def test_a_share_file_says_nothing_exact(shares):
    data = dumps(shares[0])
    assert not any(run.encode() in data for run in SKETCHES[NAMES[0]].lineage)
    for word in (b"lineage", b"count", b"privacy", b"sum_"):
        assert word not in data.partition(b"}}")[0].replace(b"count_mode", b"")


# Damage.


def test_every_flipped_bit_and_every_truncation_is_refused(shares):
    for data in (dumps(SESSION), dumps(shares[0])):
        rng = random.Random(0)
        for place in rng.sample(range(len(data)), 300):
            flipped = bytearray(data)
            flipped[place] ^= 1 << rng.randrange(8)
            with pytest.raises(SketchFileError):
                loads(bytes(flipped))
            with pytest.raises(SketchFileError):
                loads(data[:place])


SESSION_FORGERIES = {
    "one party": (b'"parties":[[', b'"parties":[]'),
    "name": (b'"north"', b'"no th"'),
    "unsorted": (b'["north"', b'["zorth"'),
    "epsilon": (b'"0x1.0000000000000p+0"', b'"0x1.0000000000000p+9"'),
    "another hex": (b'"0x1.0000000000000p+0"', b'"0x2.0000000000000p-1"'),
    "infinite": (b'"0x1.0000000000000p+0"', b'"            infinity"'),
    "honest": (b'"n_honest":2', b'"n_honest":3'),
    "float": (b'"rows_per_unit":1', b'"rows_per_unit": '),
    "neighbours": (b'"add_remove"', b'"add_remova"'),
    "id": (b'"0123456789abcdef', b'"X123456789abcdef'),
    "field": (b'"rows_per_unit"', b'"rows_per_unix"'),
    "kind": (b'"kind":"terms"', b'"kind":"tales"'),
    "format": (b"sketchlearn-session", b"sketchlearn-legend!"),
    "type": (b'"dtype":"U8"', b'"dtype":"U9"'),
}


@pytest.mark.parametrize("name", SESSION_FORGERIES)
def test_a_forged_session_with_a_good_digest_is_refused(name):
    old, new = SESSION_FORGERIES[name]
    data = dumps(SESSION)
    assert len(old) == len(new)
    assert data.count(old) >= 1
    with pytest.raises(SketchFileError):
        loads(resign(data.replace(old, new, 1)))


def repacked(share, fields=(), tensors=()):
    """The file of a share with other fields and tensors."""
    header, arrays = ShareFormat().pack(share)
    return encode(({**header, **dict(fields)}, {**arrays, **dict(tensors)}), None, "")


@pytest.mark.parametrize(
    "fields",
    [
        {"party": "east"},
        {"party": "n" * 65},
        {"kind": "exact"},
        {"dim": "5"},
        {"dim": "16777217"},
        {"lineage": ""},
        {"feature_map": "sha256:" + "0" * 64},
        {"clip": (2.0).hex() + " "},
        {"version": "9"},
    ],
)
def test_a_forged_header_of_a_share_is_refused(shares, fields):
    with pytest.raises(SketchFileError):
        loads(repacked(shares[0], fields))


@pytest.mark.parametrize(
    "tensors",
    [
        {"masked_hi": np.zeros(4, np.int64)},
        {"masked_lo": np.zeros(5, np.int64)},
        {"count": np.zeros(1, np.int64)},
        {"session.json": np.zeros(0, np.uint8)},
        {"session.json": np.frombuffer(b"[]", np.uint8)},
        {"session.json": np.zeros(8, np.int64)},
        {"session.json": np.full((2, 2), 32, np.uint8)},
    ],
)
def test_a_share_with_other_tensors_is_refused(shares, tensors):
    with pytest.raises(SketchFileError):
        loads(repacked(shares[0], tensors=tensors))


def test_a_session_deep_inside_itself_is_refused():
    deep = b'{"parties":' + b"[" * 900 + b"]" * 900 + b"}"
    text = np.frombuffer(deep, np.uint8)
    contents = dict(SessionFormat.fields), {"session.json": text}
    with pytest.raises(SketchFileError):
        loads(encode(contents, None, ""))


def test_what_cannot_be_a_share_is_never_made(shares):
    good = shares[0]
    with pytest.raises(SessionError):
        Share(good.session, good.party, Int128Array.zeros(2), good.features)


def test_a_share_that_claims_many_numbers_takes_no_memory(shares):
    data = repacked(shares[0], {"dim": "9999999"})
    tracemalloc.start()
    with pytest.raises(SketchFileError):
        loads(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


def test_keyed_files_of_shares_open_with_their_key_only(shares):
    key = bytes(range(32))
    data = dumps(shares[0], key=key)
    assert loads(data, key=key).masked == shares[0].masked
    with pytest.raises(SketchFileError, match="saved with a key"):
        loads(data)


def test_keys_are_not_saved_as_sketches():
    with pytest.raises(TypeError, match="cannot save a PartyKey"):
        dumps(make_keys()["north"])
