"""Weights of every kind: small ones, all that can be wrong in them, what they are for.

Kinds are those of the registry: a class with ``weights_kind`` that has no example here,
or no use, stops the fuzzer. :mod:`fuzz_storage` says what must hold for the files.
"""

import copy

import numpy as np
from forgery import ROWS, places, reach

import sketchlearn as sl
from sketchlearn.decoders.autoencoders.code_network import CodeNetwork, CodeSpec
from sketchlearn.decoders.autoencoders.conditional import ConditionalAutoencoder
from sketchlearn.decoders.autoencoders.conditional_spec import ConditionalSpec
from sketchlearn.decoders.clusters.ckm_descent import CKMSpec
from sketchlearn.decoders.clusters.iterative_ckm import IterativeCKM
from sketchlearn.decoders.counts.grid import CountGrid
from sketchlearn.decoders.counts.learned_laws import LearnedLaws
from sketchlearn.decoders.counts.linear import decode_linear
from sketchlearn.decoders.counts.packed import decode_packed
from sketchlearn.decoders.counts.prior import CountLaws
from sketchlearn.decoders.moments.equivariant import EquivariantDecoder
from sketchlearn.decoders.moments.prior_network import FrozenPrior, PriorSpec, shapes_of
from sketchlearn.decoders.moments.sketch_prior import SketchPrior
from sketchlearn.files.container import canonical_json, encode
from sketchlearn.files.weights import encode_weights
from sketchlearn.registry import find_builders

BITS = (ROWS > 0.5).astype(float)
WIDE = np.tile(BITS, (1, 4))


# One model of every kind at least.


def make_models():
    """Small models, by kind."""
    rng = np.random.default_rng(2)
    resnet = {"kind": "resnet", "depth": 1, "width": 3, "head": "tanh"}
    ternary = {"feature": {"kind": "ternary", "windows": 2}, "decoder": {"windows": 2}}
    specs = [
        sl.SQNetSpec(3, 4),
        sl.SQNetSpec(3, 4, inputs="outer", output="symmetric", feature=resnet),
        sl.SQNetSpec(3, 4, random={"activation": "tanh", "variance": 0.5, "seed": 3}),
        sl.SQNetSpec(4, 2, pooling="max", **ternary),
    ]
    nets = [sl.SQNet.initial(spec, seed=0) for spec in specs]
    prior = SketchPrior(
        *np.float32([[1, 2, 3, 4], [-1] * 4, [3] * 4, [0] * 4, [1] * 4])
    )
    nets.append(sl.SQNet(specs[0], nets[0].tensors, prior=prior))
    small = PriorSpec(n_loadings=2, width=4, depth=1, n_heads=2, rank=2)
    priors = [small, PriorSpec(**{**vars(small), "ordered": True})]
    paper = CKMSpec(activation="gelu", atoms="point", n_steps=3, sketch_size=4)
    autoencoders = [ConditionalSpec(4, 2, "mean", 1, 8)]
    autoencoders += [ConditionalSpec(4, 2, "sketch", 1, 8, 3, 1, 8, "tanh")]
    items = sl.ItemPrior.from_rows(BITS)
    packed = sl.pack_counters(BITS, sketch_size=2, max_rows=5)
    laws = LearnedLaws(np.full((2, 5), 0.2), np.array([0.0, 0.3]), np.ones(2) / 2)
    models = [
        *nets,
        sl.NestedSQNet.from_basis(np.eye(6)[:3], np.zeros(6)),
        *(EquivariantDecoder(FrozenPrior(s, random_tensors(s, rng))) for s in priors),
        IterativeCKM.initial(CKMSpec(n_steps=3)),
        IterativeCKM.initial(paper),
        CodeNetwork.initial(CodeSpec(width=4, n_steps=3)),
        *map(ConditionalAutoencoder.initial, autoencoders),
        laws,
        items,
        packed,
    ]
    kinds = {model.weights_kind for model in models}
    assert kinds == set(find_builders()) == set(USES), "a kind of weights is not fuzzed"
    return models


def random_tensors(spec, rng):
    shapes = dict(shapes_of(spec))
    return {name: 0.1 * rng.normal(size=shape) for name, shape in shapes.items()}


# All that can be wrong in one place.

WRONG = [-1, 0, 1, 2**16 + 1, 2**40, 2**48, 2**63, 2**64, 10**30, True, 0.5, 2.0, 1e300]
WRONG += ["x", "", "mean", "p-norm:3", None, [], [1], {}, {"a": 1}]
EXTREMES = [np.nan, np.inf, 3e38, -3e38, -1.0, 0.0, 1e-38]


def make_weights():
    """Files of weights of every kind."""
    card = {"seed": [0, None]}
    return [encode_weights(model.to_weights(card)) for model in make_models()]


def forge_everywhere():
    """Files with one field or tensor changed, for all of them and all changes."""
    return [file for model in make_models() for file in forgeries(model.to_weights())]


def forgeries(weights):
    for path in places(dict(weights.spec)):
        for value in WRONG:
            yield weights_file(weights, spec=put(weights.spec, path, value))
        yield weights_file(weights, spec=put(weights.spec, path, None, gone=True))
    more = {"extra": 1, "": 1, "card": {}, "depth": 2**40}
    for name, value in more.items():
        yield weights_file(weights, spec={**weights.spec, name: value})
    for name, array in weights.tensors.items():
        for changed in wrong_tensors(array):
            yield weights_file(weights, tensors={**weights.tensors, name: changed})
        rest = {other: a for other, a in weights.tensors.items() if other != name}
        yield weights_file(weights, tensors=rest)
        yield weights_file(weights, tensors={**rest, f"{name}x": array})
        yield weights_file(weights, half=[name])
    yield weights_file(weights, tensors={})
    one = np.ones(1, np.float32)
    yield weights_file(weights, tensors={**weights.tensors, "extra": one})


def put(spec, path, value, *, gone=False):
    """A spec with another value at a path, or with none; itself at no path."""
    changed = copy.deepcopy(dict(spec))
    if path and gone:
        del reach(changed, path[:-1])[path[-1]]
    elif path:
        reach(changed, path[:-1])[path[-1]] = value
    elif gone:
        changed = {}
    return changed


def wrong_tensors(array):
    yield from (array.astype(kind) for kind in ("f8", "i8", "u8", "u1"))
    for shape in ((0,), (*array.shape, 1), array.shape[::-1], (1, *array.shape), ()):
        if np.prod(shape) == array.size:
            yield array.reshape(shape)
    yield np.zeros((0, *array.shape[1:]), np.float32)
    yield np.repeat(np.atleast_1d(array), 2, axis=0)
    yield np.atleast_1d(array)[:-1]
    yield np.zeros((2**40, 0), np.float32)
    for number in EXTREMES:
        yield np.full_like(array, number)
        last = array.copy()
        last[...] = np.where(
            np.arange(array.size).reshape(array.shape) == 0, number, array
        )
        yield last


def weights_file(weights, *, spec=None, tensors=None, half=None):
    """The bytes of weights that say what they like, with a digest that fits."""
    metadata = {"format": "sketchlearn-weights", "version": "1", "kind": weights.kind}
    contents = dict(weights.tensors if tensors is None else tensors)
    for name in weights.half if half is None else half:
        if name in contents:
            with np.errstate(over="ignore"):
                contents[name] = contents[name].astype(np.float16)
    for name, value in {
        "spec.json": weights.spec if spec is None else spec,
        "card.json": {},
    }.items():
        contents[name] = np.frombuffer(canonical_json(value).encode(), np.uint8)
    return encode((metadata, contents), None, "")


# What they are for.


def use_sqnet(net, path):
    phi = net.feature_map()
    if phi.n_features > 10**5:
        return
    net.decoder().decode(
        sl.sketch_rows(np.eye(2, phi.n_features), phi, pooling=net.spec.pooling)
    )
    if net.prior is not None:
        net.releasable_map()


def use_equivariant(decoder, path):
    settings = {"sketch_size": 40, "bounds": (0, 1), "decoder": path}
    sl.CompressivePCA(2, **settings).fit(WIDE)


def use_ckm(model, path):
    size = model.spec.sketch_size or 4
    if size > 10**5 or model.spec.n_steps > 100:
        return
    sketch = sl.sketch_rows(ROWS, model.feature_map(3, size))
    model.decoder(2, n_starts=1).decode(sketch)


def use_autoencoder(model, path):
    sl.CompressiveAutoencoder(2, decoder=path).fit(BITS).reconstruct(BITS)


def use_packed(packed, path):
    phi = sl.TableFeatures(packed.table, origin="data")
    rows = np.eye(2, packed.prior.n_items)
    decode_packed(packed, sl.sketch_rows(rows, phi))


USES = {
    "sqnet": use_sqnet,
    "nested-sqnet": lambda nested, path: use_sqnet(
        nested.sized(nested.sketch_size), path
    ),
    "equivariant": use_equivariant,
    "iterative-ckm": use_ckm,
    "code-network": use_autoencoder,
    "conditional-autoencoder": use_autoencoder,
    "count-laws": lambda laws, path: CountLaws.build(
        CountGrid.up_to(20), 50, learned=laws
    ),
    "item-prior": lambda prior, path: decode_linear(
        prior, np.ones((prior.n_items, 2)), [1.0, 2.0], 5
    ),
    "packed-counters": use_packed,
}
"""What a model of each kind does first, given with the path of its file."""
