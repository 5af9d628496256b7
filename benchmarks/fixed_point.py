"""What whole numbers cost learned feature maps: nothing that their tasks can measure.

Every shipped learned map is evaluated twice on real test sets: as shipped, in whole
numbers through `sketch_rows`, and in float64 with the weights as they were trained. The
same decoder reads both sketches.

* `pca-sqnet-100`: mean LRE of the principal components;
* `kmeans-ckm`, `kmeans-ckm-private`, `kmeans-ckm-paper`: mean inertia over Lloyd's, on
  sets of at most 20 features, 1000 numbers (or the model's own size);
* residual networks of random weights: the largest difference of a feature.

usage: python3 dev.py run benchmarks/fixed_point.py [--data ../shared]
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.decoders.clusters.pullback import activate
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.experiments.kmeans.sets import N_CLUSTERS, load_cluster_sets
from sketchlearn.experiments.pca.sets import Estimate, load_sets
from sketchlearn.features.network import NetworkFeatures, lower_products
from sketchlearn.networks.forward import FrozenNetwork, NetworkSpec, initial_tensors
from sketchlearn.registry import load_model


def with_mean(sketch, mean):
    """A sketch whose mean is, to the last lattice step, a given one."""
    unit = sketch.count * 2**sketch.features.frac_bits
    total = Int128Array.from_ints(round(float(value) * unit) for value in mean)
    return replace(sketch, total=total)


def sqnet(data):
    model = load_model("pca-sqnet-100")
    phi, decoder = model.feature_map(value_bound=2.0**20), model.decoder()
    tensors = {name: phi.weights()[name] for name in phi.weights()}
    network = FrozenNetwork(phi.network, tensors)
    scores, largest = [], 0.0
    for item in load_sets(data):
        if not item.real:
            continue
        rows, d = item.few_rows, item.n_features
        rows = np.pad(rows, ((0, 0), (0, phi.n_features - d)))
        ours = sketch_rows(rows, phi, progress=False)
        mean = network(lower_products(rows)).mean(axis=0)
        largest = max(largest, np.abs(ours.mean - mean).max())
        pair = [
            item.pca_lre(Estimate(decoder.decode(sketch).params[:d, :d]))
            for sketch in (ours, with_mean(ours, mean))
        ]
        scores.append(pair)
    ours, floats = np.mean(scores, axis=0)
    worst = np.abs(np.subtract(*np.transpose(scores))).max()
    print(
        f"pca-sqnet-100: mean LRE {ours:.5f} in whole numbers, {floats:.5f} in float64 "
        f"({len(scores)} real sets); largest difference on a set {worst:.1e}, of a "
        f"number of the sketch {largest:.1e}"
    )


def clusters(data, name):
    model = load_model(name)
    size = model.spec.sketch_size or 1000
    scores = []
    for item in load_cluster_sets(data):
        if item.n_features > 20:
            continue
        phi = model.feature_map(item.n_features, size)
        ours = sketch_rows(item.rows, phi, progress=False)
        phases = phi.scaling(item.rows) @ phi.matrix.astype(np.float64)
        mean = activate(phases, phi.activation)[0].mean(axis=0)
        decoder = model.decoder(N_CLUSTERS)
        pair = [
            item.ratio(decoder.decode(sketch).params.centers)
            for sketch in (ours, with_mean(ours, mean))
        ]
        scores.append(pair)
    ours, floats = np.mean(scores, axis=0)
    print(
        f"{name}: mean inertia over Lloyd's {ours:.4f} in whole numbers, "
        f"{floats:.4f} in float64 ({len(scores)} sets)"
    )


def random_networks():
    rows = np.random.default_rng(0).normal(size=(2000, 50))
    for kind in ("resnet", "transformer"):
        spec = NetworkSpec(50, 64, kind=kind, depth=5, width=256, head="tanh")
        tensors = initial_tensors(spec, seed=0)
        phi, network = NetworkFeatures(spec, tensors), FrozenNetwork(spec, tensors)
        features, expected = phi(rows), network(rows)
        print(
            f"{kind}, depth 5, width 256: features differ by at most "
            f"{np.abs(features - expected).max():.1e}, their means by "
            f"{np.abs(features.mean(axis=0) - expected.mean(axis=0)).max():.1e}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared"))
    options = parser.parse_args()
    random_networks()
    if not (options.data / "data").is_dir():
        raise SystemExit(f"no data in {options.data}; pass --data (skipped).")
    sqnet(options.data)
    for name in ("kmeans-ckm", "kmeans-ckm-private", "kmeans-ckm-paper"):
        clusters(options.data, name)


if __name__ == "__main__":
    main()
