"""Forged files: small files of every kind, changed by their structure, signed anew.

What is changed are fields of headers, values in descriptions, types and shapes of
tensors and the numbers in them; the digest fits again, so that the reader has to look
at what stands behind it. :mod:`fuzz_storage` says what must hold for them.
"""

import base64
import copy
import hashlib
import json
import struct
from pathlib import Path

import numpy as np

import sketchlearn as sl
from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.errors import SketchlearnError
from sketchlearn.features.build import build_map
from sketchlearn.features.registry import known_kinds
from sketchlearn.networks.forward import NetworkSpec, initial_tensors
from sketchlearn.testing import contribute_seeded, release_seeded

MAP_BYTES = 2**22
"""Larger maps are legitimate and slow; those that are too large are tried as bombs."""

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "v1"
ROWS = np.random.default_rng(0).uniform(0, 1, (60, 3))


# Files to start from.


def make_maps():
    """One small map of every kind at least."""
    rng = np.random.default_rng(1)
    scaling = sl.Scaling.from_bounds(np.zeros(3), np.ones(3))
    places = {"basis": np.eye(3)[:, :2], "centre": np.zeros(3)}
    net = NetworkSpec(3, 4, kind="resnet", depth=1, width=3, head="tanh")
    maps = [
        sl.FourierFeatures(3, 8, scaling=scaling),
        sl.HarmonicFeatures(3, 12),
        sl.ActivationFeatures(rng.normal(size=(3, 4)), activation="tanh"),
        sl.MomentFeatures(3, scaling=scaling),
        sl.CrossMomentFeatures(3, 1, kept=[0, 2], targets=[2], importance=[1, 0.5]),
        sl.QuadraticFeatures(3, 5),
        sl.QuadraticFeatures(3, 5, law="gaussian"),
        sl.NystromFeatures(ROWS[:3]),
        sl.CountMinFeatures(3, width=2, depth=2),
        sl.CountSketchFeatures(3, width=2, depth=2),
        sl.JointCountFeatures(3, width=2, depth=2),
        sl.BloomFeatures(3, width=2, depth=2),
        sl.CounterFeatures(3),
        sl.TableFeatures([[1, 0], [-2, 3], [0, 1]]),
        sl.CellFeatures([[0.0, 1.0], [1.0, 0.0]], **places),
        sl.CellFeatures([[0.0, 1.0], [1.0, 0.0]], **places, n_crossed=2),
        sl.NetworkFeatures(net, initial_tensors(net)),
    ]
    parts = [maps[0], maps[3], maps[2]]
    maps += [sl.ConcatenatedFeatures(parts), sl.clipped(maps[0], norm_bound=1.5)]
    maps.append(sl.clipped(sl.ConcatenatedFeatures([maps[0], maps[7]]), norm_bound=1.0))
    assert {phi.kind for phi in maps} == set(known_kinds()), (
        "a kind of map is not fuzzed"
    )
    return maps


def make_plans():
    """Maps that estimators decode, of declared bounds."""
    size, bounds = {"sketch_size": 60}, {"bounds": (0.0, 1.0)}
    ridge = sl.CompressiveRidge(**bounds, target_bounds=(0.0, 1.0))
    return [
        sl.CompressivePCA(**bounds).plan(3),
        sl.CompressivePCA(sketch_size=8, **bounds).plan(3),
        ridge.plan(2, n_targets=1),
        sl.CompressiveKMeans(2, **size, **bounds).plan(3),
        sl.CompressiveGaussianMixture(2, **size, **bounds).plan(3),
    ]


def make_sketches():
    """Sketches of what estimators decode, and of other maps and poolings."""
    sketches = [sl.sketch_rows(ROWS, phi) for phi in [*make_plans(), *make_maps()]]
    phi = sl.FourierFeatures(3, 8)
    for pooling in ("max", "min", "p-norm:3", "log-sum-exp"):
        sketches.append(sl.sketch_rows(ROWS, phi, pooling=pooling))
    return [*sketches, *make_counts()]


def make_counts():
    """Sketches of rows of items, whose counts are packed."""
    items, sizes = (ROWS > 0.7).astype(float), {"width": 4, "depth": 3}
    return [
        sl.sketch_rows(items, sl.CountMinFeatures(3, **sizes)),
        sl.sketch_rows(items, sl.CountSketchFeatures(3, **sizes), pooling="sum"),
        sl.sketch_rows(items, sl.BloomFeatures(3, **sizes), pooling="max"),
        sl.sketch_rows(items * 0, sl.CountMinFeatures(3, **sizes)),
        sl.sketch_rows(items, sl.CountSketchFeatures(3, **sizes, row_items=3)),
        sl.sketch_rows(items, sl.JointCountFeatures(3, **sizes)),
        sl.sketch_rows(items, sl.CounterFeatures(3)),
    ]


def make_private():
    """Releases of every mode of counting, and a seeded one."""
    phi = sl.clipped(sl.MomentFeatures(3, order="mean"), norm_bound=1.5)
    exact = sl.sketch_rows(ROWS, phi)

    budget = {"epsilon": 1.0, "delta": 1e-6}
    public = {"neighbours": "replace", "count": "public"}
    ledger = sl.Ledger.ephemeral(epsilon=5.0, delta=1e-3)
    planned = [sl.sketch_rows(np.tile(ROWS, (99, 1)), phi) for phi in make_plans()]
    return [
        *(release_seeded(sketch, 0, epsilon=9.0, delta=1e-6) for sketch in planned),
        sl.release(exact, ledger=ledger, **budget),
        release_seeded(exact, 0, **budget),
        release_seeded(exact, 0, **budget, **public),
        release_seeded(exact, 0, **budget, neighbours="replace", rows_per_unit=3),
        release_seeded(exact, 0, **budget, count="laplace"),
    ]


def make_parties():
    """Sessions, exact and private, and shares of them."""
    phi = sl.clipped(sl.MomentFeatures(3, order="mean"), norm_bound=1.5)
    exact = sl.sketch_rows(ROWS, phi)
    keys = {name: sl.PartyKey(name.encode() * 32) for name in "ab"}
    public = {name: key.public for name, key in keys.items()}
    plain = sl.Session.start(phi, public)
    private = sl.Session.start(phi, public, epsilon=1.0, delta=1e-6)
    shares = [contribute_seeded(exact, private, keys["a"], 0)]
    shares += [sl.contribute(exact, plain, key) for key in keys.values()]
    return [plain, private, *shares]


def make_old(kind):
    """Files of version 1, as they were written then."""
    return [path.read_bytes() for path in sorted(GOLDEN.glob(f"*.{kind}"))]


def old_counts():
    """Counts of version 2, before they were packed."""
    return (GOLDEN.parent / "count_sketch_v2.sketch").read_bytes()


# Changes.


def split(data):
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def join(header, payload):
    """The file of a header and its payload, with a digest that fits."""
    if isinstance(header.get("__metadata__"), dict):
        header["__metadata__"]["digest"] = "sha256:" + "0" * 64
    return sign(json.dumps(header, sort_keys=True, separators=(",", ":")), payload)


def sign(text, payload):
    text = text.encode()
    text += b" " * (-len(text) % 8)
    data = struct.pack("<Q", len(text)) + text + payload
    digest = hashlib.sha256(data).hexdigest().encode()
    return data.replace(b'"sha256:' + b"0" * 64, b'"sha256:' + digest, 1)


WHOLE = [0, 1, -1, 2, 3, 5, 7, 22, 44, 45, 255, 1000, 65536, 10**6, 10**9, 2**31]
WHOLE += [2**32, 2**48, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, 2**128, -(2**63)]
WHOLE += [10**30, 10**400, -5, 1100, -1100]
FLOATS = [0.0, -0.0, 0.5, 1.5, 2.0, 1e308, -1e-308, 5e-324, 0.1, 1e-30, 1e17, 1e250]
FLOATS += [float("nan"), float("inf"), -float("inf"), 1e-260, 64.0, 2.0**16]
WORDS = ["", "a", "data", "declared", "../../etc/passwd", "\u00e9\ud800", "\x1b[31m"]
WORDS += ["sha256:" + "0" * 64, "mean", "max", "gaussian", "unit", "outer", "relu"]
WORDS += ["0x1.0000000000000p+0", "0x1.fffffffffffffp+1023", "0x0.0000000000001p-1022"]
WORDS += [
    "__class__",
    "\x00",
    "x" * 5000,
    "[]",
    "{}",
    "*",
    "p-norm:1e+300",
    *known_kinds(),
]
NAMES = ["kind", "origin", "seed", "n_features", "sketch_size", "stored", "scaling"]
NAMES += ["extra", "width", "depth", "bits", "reach", "parts", "inner", ""]
TYPES = ["<f8", "<f4", "<i8", "|b1", "O", "<U9", ">f8"]
SHAPES = [[], [3], [-1], [2, 2], [3, 2], [0], [3, 0], [2**40, 0], [1], [2, 1], [1, 2]]


def any_value(rng, depth=0):
    """Plain values of all types and sizes."""
    match rng.randrange(12):
        case 0 | 1 | 2:
            return rng.choice(WHOLE)
        case 3 | 4:
            return rng.choice(FLOATS)
        case 5:
            return rng.choice(WORDS)
        case 6:
            return rng.choice([None, True, False, [], {}])
        case 7 if depth < 3:
            return [any_value(rng, depth + 1) for _ in range(rng.randrange(4))]
        case 8 if depth < 3:
            count = rng.randrange(4)
            return {rng.choice(NAMES): any_value(rng, depth + 1) for _ in range(count)}
        case 9:
            raw = rng.randbytes(rng.choice([0, 1, 8, 12, 16, 24, 32, 48]))
            data = base64.b64encode(raw).decode()
            return {
                "dtype": rng.choice(TYPES),
                "shape": rng.choice(SHAPES),
                "data": data,
            }
        case 10:
            value = []
            for _ in range(rng.choice([5, 31, 50, 400, 900])):
                value = [value] if rng.random() < 0.9 else {"inner": value}
            return value
    return rng.choice(WHOLE)


def places(value, path=()):
    """Paths of everything inside a value."""
    found = [path]
    if isinstance(value, dict):
        items = list(value.items())
    else:
        items = list(enumerate(value)) if isinstance(value, list) else []
    for key, child in items:
        found += places(child, (*path, key))
    return found


def reach(value, path):
    for key in path:
        value = value[key]
    return value


def change(value, rng):
    """A plain value with one thing inside changed."""
    found = [path for path in places(value) if path]
    if not found:
        return any_value(rng)
    path = rng.choice(found)
    parent, key = reach(value, path[:-1]), path[-1]
    old = parent[key]
    kind = rng.randrange(8)
    is_number = type(old) in (int, float)
    if kind == 0:
        parent.pop(key)
    elif kind == 1 and isinstance(old, dict):
        old[rng.choice(NAMES)] = any_value(rng)
    elif kind == 2:
        parent[key] = copy.deepcopy(reach(value, rng.choice(found)))
    elif kind == 3 and isinstance(parent, list):
        parent += copy.deepcopy(parent) * rng.choice([1, 3])
    elif kind <= 5 and is_number and abs(old) < 1e100:
        near = [
            old + 1,
            old - 1,
            -old,
            old * 2,
            float(old),
            int(old),
            old / 2,
            old * 64,
        ]
        parent[key] = rng.choice(near)
    elif kind == 6 and isinstance(old, dict) and "kind" in old:
        parent[key] = {"kind": "clipped", "version": 2, "norm_bound": 1.0, "inner": old}
        parent[key] |= {"scaling": None, "stored": []}
    else:
        parent[key] = any_value(rng)
    return value


def change_json(text, rng):
    """A JSON text with one to three things changed."""
    value = json.loads(text)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        value = change(value, rng)
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def change_tensor(header, rng):
    names = [name for name in header if name != "__metadata__"]
    if not names:
        return
    entry, kind = header[rng.choice(names)], rng.randrange(5)
    shapes = [[0], [], [1, 1], [2**62, 0], [0, 2**62], [2**31] * 2 + [0], [2**63 - 1]]
    shapes += [[-1], [True], [1.0], [1] * 9, [2], [3], [8], [3, 4]]
    if kind == 0:
        entry["shape"] = rng.choice(
            [*shapes, entry["shape"][::-1], [*entry["shape"], 1]]
        )
    elif kind == 1:
        types = ["F32", "F64", "I64", "U64", "U8", "F16", "BF16", "", None, 3]
        entry["dtype"] = rng.choice(types)
    elif kind == 2:
        offsets = [[0, 0], [0, 8], [8, 0], [-8, 8], [0, 2**63], [1, 9], [0.0, 8.0]]
        entry["data_offsets"] = rng.choice(offsets)
    elif kind == 3:
        new = [
            "../x",
            "x/y",
            "\u00e9",
            "a" * 200,
            "count",
            "description.json",
            "",
            "zz",
        ]
        header[rng.choice(new)] = dict(entry)
    else:
        header.pop(rng.choice(names))


def change_numbers(payload, rng):
    """Single words of a payload, as numbers of several types."""
    changed = bytearray(payload)
    for _ in range(rng.randrange(1, 4)):
        if not changed:
            break
        place = 8 * rng.randrange(-(-len(changed) // 8))
        word = rng.choice(
            [
                struct.pack("<d", rng.choice(FLOATS)),
                struct.pack(
                    "<q", rng.choice([-1, 0, 1, 7, 2**40, 2**63 - 1, -(2**63)])
                ),
                struct.pack("<2f", rng.choice([float("nan"), -0.0, 3e38]), 1.0),
                rng.randbytes(8),
            ]
        )
        changed[place : place + 8] = word[: len(changed[place : place + 8])]
    return bytes(changed)


def lay_out(header, payload):
    """Offsets and payload made to fit the shapes, where these make sense."""
    end = 0
    try:
        for name in sorted(name for name in header if name != "__metadata__"):
            entry, start = header[name], end
            size = int(entry["dtype"][1:]) // 8
            end += size * int(np.prod([int(n) for n in entry["shape"]], dtype=object))
            entry["data_offsets"] = [start, end]
    except (TypeError, ValueError, KeyError, OverflowError):
        return payload
    return (payload + bytes(end))[:end] if 0 <= end < 10**6 else payload


def fit_again(fields):
    """Let the header say of the map what its description builds, if it does."""
    try:
        phi = build_map(json.loads(fields["description"]), max_bytes=MAP_BYTES)
        spec = phi.spec
    except (SketchlearnError, ValueError, RecursionError, KeyError):
        return
    fields["feature_map"] = f"sha256:{spec.fingerprint}"
    if "counts" not in fields.get("kind", ""):  # those have a version of their own
        fields["version"] = str(spec.version)
    for name, value in (
        ("n_features", spec.n_features),
        ("dim", spec.sketch_size),
        ("frac_bits", spec.frac_bits),
        ("rounding_bits", spec.rounding_bits),
        ("value_bound", spec.value_bound.hex()),
        ("clip", "" if spec.norm_bound is None else spec.norm_bound.hex()),
    ):
        if name in fields:
            fields[name] = str(value)


def change_text_tensor(header, payload, rng):
    """JSON that a weights file keeps in its payload."""
    name = rng.choice(["spec.json", "card.json"])
    start, stop = header[name]["data_offsets"]
    text = change_json(payload[start:stop], rng).encode()
    header[name]["shape"] = [len(text)]
    end = 0
    for key in sorted(key for key in header if key != "__metadata__"):
        size = header[key]["data_offsets"][1] - header[key]["data_offsets"][0]
        size = len(text) if key == name else size
        header[key]["data_offsets"] = [end, end + size]
        end += size
    return payload[:start] + text + payload[stop:]


def forge(data, rng):
    """A file with something changed and a digest that fits."""
    header, payload = split(data)
    fields = header["__metadata__"]
    try:
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            payload = change_file(header, payload, rng)
        if rng.random() < 0.4:
            fit_again(fields)
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError):
        pass  # what was changed first leaves nothing to change there
    if rng.random() < 0.5:
        payload = lay_out(header, payload)
    if rng.random() < 0.03:
        return sign(retell(header, rng), payload)
    return join(header, payload)


def change_file(header, payload, rng):
    """Change one thing in a header, or in the payload that is given back."""
    fields, chosen = header["__metadata__"], rng.random()
    if chosen < 0.45 and "spec.json" in header:
        return change_text_tensor(header, payload, rng)
    if chosen < 0.45 and fields.get("description"):
        fields["description"] = change_json(fields["description"], rng)
    elif chosen < 0.65 and fields.get("privacy"):
        fields["privacy"] = change_json(fields["privacy"], rng)
    elif chosen < 0.75:
        name = rng.choice(list(fields))
        old = str(fields[name])
        new = [any_value(rng), str(any_value(rng)), f"{old}0", f"{old} ", old[:-1]]
        fields[name] = rng.choice(new)
    elif chosen < 0.85:
        change_tensor(header, rng)
    elif chosen < 0.97:
        return change_numbers(payload, rng)
    else:
        return payload + rng.randbytes(rng.choice([1, 8, 16]))
    return payload


def forge_total(data, rng):
    """A sketch of the same map with another total and count, possible or nearly so."""
    header, payload = split(data)
    if "counts" in header:
        return forge_counts(header, payload, rng)
    start = 8 if "count" in header else 0
    count = int.from_bytes(payload[:start], "little", signed=True)
    half = (len(payload) - start) // 2
    high = np.frombuffer(payload[start : start + half], "<i8").astype(np.int64)
    low = np.frombuffer(payload[start + half :], "<u8").astype(np.uint64)
    whole = Int128Array(high, low).to_ints()
    if rng.random() < 0.5:  # the same rows many times over, give or take a step
        times = rng.choice([1, 1, 10, 10**9])
        jitter = rng.choice([0, 1, 2**10, 2**30])
        whole = [times * value + rng.randint(-jitter, jitter) for value in whole]
        count *= times
    else:
        for _ in range(rng.choice([1, 1, 2, 5])):
            factor = rng.choice([0, 0, -1, 2, 1000, 10**9, rng.uniform(-1, 1)])
            step, share = rng.choice([0, 0, 1, 2**20, 2**60]), rng.choice([0.1, 1])
            for i in range(len(whole)):
                if rng.random() < share:
                    whole[i] = int(whole[i] * factor) + step
        count = rng.choice([count, count, 0, 1, 2, count * 10**6, 2**62, -1])
    whole = [max(min(value, 2**127 - 1), -(2**127)) for value in whole]
    head = count.to_bytes(8, "little", signed=True) if start else b""
    return join(header, head + Int128Array.from_ints(whole).tobytes())


def forge_counts(header, payload, rng):
    """Packed counts with another width, least count, number of rows or bits."""
    fields = header["__metadata__"]
    size, bits = int(fields["dim"]), int(fields["bits"])
    packed = int.from_bytes(payload[8:], "little")
    counts = [packed >> bits * i & (1 << bits) - 1 for i in range(size)]
    least = int(fields["least"]) + rng.choice([0, 0, 1, -1, 10**6, 2**62, -(2**63)])
    for _ in range(rng.choice([0, 1, 1, 3])):
        i = rng.randrange(size)
        near = [0, 1, counts[i] + 1, 2 * counts[i], 2**20, 2**40, 2**63, 2**64 - 1]
        counts[i] = rng.choice(near)
    bits = max(1, *(count.bit_length() for count in counts)) + rng.choice([0, 0, 0, 1])
    packed = sum(count << bits * i for i, count in enumerate(counts))
    n_bytes = (size * bits + 7) // 8
    spare = rng.choice([0, 0, 1]) << size * bits
    data = ((packed | spare) % 256**n_bytes).to_bytes(n_bytes, "little")
    count = int.from_bytes(payload[:8], "little", signed=True)
    count = rng.choice([count, count, 0, 1, -1, 10**6, 2**62])
    fields |= {"bits": str(bits), "least": str(least)}
    header["counts"] |= {"shape": [n_bytes], "data_offsets": [8, 8 + n_bytes]}
    return join(header, count.to_bytes(8, "little", signed=True) + data)


def retell(header, rng):
    """The header in words of another form: spaces, escapes, keys that come twice."""
    header["__metadata__"]["digest"] = "sha256:" + "0" * 64
    text = json.dumps(header, sort_keys=True, separators=(",", ":"))
    forms = [
        text.replace('":', '": ', 1),
        text.replace('"kind"', '"k\\u0069nd"', 1),
        text[:-1] + ',"count":{}}',
        text.replace("{", '{"__metadata__":{},', 1),
        text.replace('"format":', '"format":"sketchlearn-map","format":', 1),
    ]
    return rng.choice(forms)
