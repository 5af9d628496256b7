"""Only training needs torch: everything else runs where it cannot be imported.

Sketches are made here and decoded in a process without torch, from their bytes.
"""

import json
import subprocess
import sys

import numpy as np
import pytest

import sketchlearn as sl
from sketchlearn.decoders.baselines.unrolled import UnrolledDecoder

NO_TORCH = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, NoTorch())
"""
RNG = np.random.default_rng(0)
ROWS = RNG.uniform(size=(300, 12))
DECODERS = {
    "pca-equivariant": "model.decode(sketch).params.covariance",
    "pca-ordered": "model.decode(sketch).params.covariance",
    "pca-sqnet": "model.sized(100).decoder().decode(sketch).params",
    "kmeans-ckm": "model.decoder(3).decode(sketch).params.centers",
    "kmeans-ckm-private": "model.decoder(3).decode(sketch).params.centers",
    "frequency-parallel-100": "model.decoder().decode(sketch).params",
    "frequency-parallel-ternary-100": "model.decoder().decode(sketch).params",
    "membership-parallel-100": "model.decoder().decode(sketch).params",
    "kmeans-ckm-paper": "model.decoder(3).decode(sketch).params.centers",
    "autoencoder-m": "(lambda one: one.decode(one.marginals[None, :50]))"
    "(model.adapt(sketch))",
    "autoencoder-ms": "(lambda one: one.decode(one.marginals[None, :50]))"
    "(model.adapt(sketch))",
    "autoencoder-codes": "sl.CompressiveAutoencoder(4).fit_sketch(sketch)"
    ".inverse_transform(np.eye(4))",
    "count-laws": "sl.FrequencyEstimator(60).fit_sketch(sketch).counts_",
}
MAPS = {
    "pca-equivariant": lambda model: sl.CrossMomentFeatures(12, 3),
    "pca-ordered": lambda model: sl.CrossMomentFeatures(12, 3, kept=[0, 2, 3, 7, 9]),
    "pca-sqnet": lambda model: model.sized(100).feature_map(value_bound=64.0),
    "kmeans-ckm": lambda model: model.feature_map(12, 100),
    "kmeans-ckm-private": lambda model: model.feature_map(12, 100),
    "frequency-parallel-100": lambda model: model.feature_map(),
    "frequency-parallel-ternary-100": lambda model: model.feature_map(),
    "membership-parallel-100": lambda model: model.feature_map(),
    "kmeans-ckm-paper": lambda model: model.feature_map(12, 400),
    "autoencoder-m": lambda model: model.feature_map(),
    "autoencoder-ms": lambda model: model.feature_map(),
    "autoencoder-codes": lambda model: sl.CompressiveAutoencoder(4).plan(12),
    "count-laws": lambda model: sl.JointCountFeatures(60, width=10, depth=4),
}


def run(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", NO_TORCH + code, *map(str, arguments)],
        capture_output=True,
        text=True,
    )


def output(code, *arguments):
    done = run(code, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def decoded(sketch, setup, expression, folder):
    """Numbers that an expression of a sketch has where there is no torch."""
    sl.save(sketch, folder / "a.sketch")
    sl.save(sketch.feature_map, folder / "a.map")
    code = f"""
import json
import numpy as np
import sketchlearn as sl
{setup}
feature_map = sl.load(sys.argv[1] + "/a.map")
sketch = sl.load(sys.argv[1] + "/a.sketch").with_map(feature_map)
print(json.dumps(({expression}).tolist()))
"""
    return np.array(json.loads(output(code, folder)))


MODELS = pytest.mark.parametrize(
    "name",
    [
        "pca-equivariant",
        "pca-ordered",
        "pca-sqnet",
        "kmeans-ckm",
        "kmeans-ckm-private",
        "frequency-parallel-100",
        "frequency-parallel-ternary-100",
        "membership-parallel-100",
        "kmeans-ckm-paper",
        "autoencoder-m",
        "autoencoder-ms",
        "autoencoder-codes",
        "count-laws",
    ],
)


def test_every_shipped_model_is_tried_here():
    assert {model.name for model in sl.list_models()} == DECODERS.keys()


@MODELS
def test_every_shipped_model_is_loaded(name):
    code = "import sketchlearn as sl; print(type(sl.load_model(sys.argv[1])).__name__)"
    assert output(code, name).strip() == type(sl.load_model(name)).__name__


@MODELS
def test_every_shipped_model_decodes_the_same_numbers(name, tmp_path):
    model = sl.load_model(name)
    phi = MAPS[name](model)
    given = (ROWS > 0.5) * 1.0 if name.startswith("autoencoder") else ROWS
    rows = np.pad(given, ((0, 0), (0, phi.n_features - ROWS.shape[1])))
    sketch = sl.sketch_rows(rows, phi)
    expected = eval(
        DECODERS[name], {"sl": sl, "np": np, "model": model, "sketch": sketch}
    )
    setup = f"model = sl.load_model({name!r})"
    found = decoded(sketch, setup, DECODERS[name], tmp_path)
    assert np.array_equal(found, expected)


def test_unrolled_descent_finds_the_same_centres(tmp_path):
    sketch = sl.sketch_rows(ROWS, sl.FourierFeatures(12, 60, seed=0))
    expected = UnrolledDecoder(3).decode(sketch).params.centers
    setup = "from sketchlearn.decoders.baselines.unrolled import UnrolledDecoder"
    code = "UnrolledDecoder(3).decode(sketch).params.centers"
    assert np.array_equal(decoded(sketch, setup, code, tmp_path), expected)


def test_estimators_with_the_learned_prior_are_fitted():
    code = """
import numpy as np, sketchlearn as sl
X = np.random.default_rng(0).normal(size=(200, 12))
sl.CompressivePCA(2, sketch_size=36).fit(X)
sl.CompressiveRidge(sketch_size=36).fit(X[:, 1:], X[:, 0])
print("fitted")
"""
    assert output(code).strip() == "fitted"


@pytest.mark.parametrize(
    "module",
    ["cli", "demo", "experiments.protocol", "meta.config", "meta.datasets", "sqnet"],
)
def test_what_does_not_train_is_imported(module):
    output(f"import sketchlearn.{module}")


@pytest.mark.parametrize(
    "module",
    [
        "experiments.kmeans.reproduction",
        "experiments.pca.reproduction",
    ],
)
def test_the_experiments_are_imported(module):
    output(f"import sketchlearn.{module}")


@pytest.mark.parametrize(
    "module", ["meta.sqnet", "meta.prior", "meta.runs", "meta.trainer"]
)
def test_whoever_trains_reads_what_to_install(module):
    done = run(f"import sketchlearn.{module}")
    last = done.stderr.strip().splitlines()[-1]
    assert "MissingExtraError: 'torch' is needed here" in last
    assert last.endswith("pip install 'sketchlearn[train]'")


def test_the_command_to_train_says_so_in_one_line(tmp_path):
    (tmp_path / "a.toml").write_text('task = "correlations"\n[cpu.train]\nsteps = 1\n')
    code = """
sys.argv[:1] = ["sketchlearn", "train"]
from sketchlearn.cli.app import main
main()
"""
    done = run(
        code, tmp_path / "a.toml", "--data", tmp_path, "-o", tmp_path / "a.safetensors"
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: 'torch' is needed here")
    assert done.stderr.strip().endswith("pip install 'sketchlearn[train]'")
    assert len(done.stderr.strip().splitlines()) == 1
