"""Importing is light, public names are complete, and extras fail helpfully."""

import importlib
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import sketchlearn as sl
from sketchlearn.errors import MissingExtraError, SketchlearnError, import_extra

ROOT = Path(__file__).parents[1]
PROMISED = {
    "AbstractFeatureMap", "ActivationFeatures", "AuditReport", "BloomFeatures",
    "CellFeatures", "CompressiveClassifier", "CompressiveGaussianMixture",
    "CompressiveKMeans", "CompressivePCA", "CompressiveRidge", "ConcatenatedFeatures",
    "CountMinFeatures", "CountSketchFeatures", "CounterFeatures",
    "CrossMomentFeatures", "FourierFeatures", "FrequencyEstimator", "HarmonicFeatures",
    "ItemPrior", "JointCountFeatures", "Ledger", "MembershipEstimator",
    "MomentFeatures", "NetworkFeatures", "NystromFeatures", "PartyKey",
    "PrivacyStatement", "Session", "Share", "combine", "contribute",
    "PrivateSketch", "QuadraticFeatures", "SQNet", "SQNetSpec", "Scaling", "Sketch",
    "TableFeatures", "audit", "clipped", "dumps", "list_models", "load", "load_model",
    "loads", "merge_disjoint", "open_items", "open_rows", "pack_counters", "release",
    "release_by_label", "save", "sketch_items", "sketch_rows", "suggest_size",
}  # fmt: skip
"""Names that programs rely on: none of them goes without a word in the changelog."""


@pytest.fixture
def dev():
    """The script of the repository, which an archive of the sources does not have."""
    if not (ROOT / "dev.py").exists():
        pytest.skip("there is no dev.py")
    spec = spec_from_file_location("dev", ROOT / "dev.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


def test_importing_loads_neither_torch_nor_scikit_learn():
    heavy = ["torch", "sklearn", "scipy", "numpy", "pandas", "matplotlib", "pyarrow"]
    heavy += ["cryptography"]
    code = (
        "import sys, sketchlearn, sketchlearn.cli;"
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    assert run(code).strip() == "[]"


def test_fitting_moments_never_loads_torch():
    code = (
        "import sys, sketchlearn as sl;"
        "sl.CompressivePCA().fit([[1., 2.], [3., 5.], [4., 4.]]);"
        "print('torch' in sys.modules)"
    )
    assert run(code).strip() == "False"


@pytest.mark.parametrize("name", sl.__all__)
def test_every_public_name_is_there(name):
    assert getattr(sl, name) is not None
    assert name in dir(sl)


def test_what_was_promised_stays_public():
    assert set(sl.__all__) >= PROMISED


def test_the_public_names_are_those_that_modules_declare(dev):
    text = Path(sl.__file__).read_text("utf-8")
    assert dev.with_names(text) == text, "run: python3 dev.py names"


def test_what_a_module_declares_public_is_of_its_own(dev):
    found = [name for names in dev.public_names().values() for name in names]
    assert sorted(found) == sorted(set(found))
    for home, names in dev.public_names().items():
        assert set(names) <= set(importlib.import_module(f"sketchlearn.{home}").__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Sketchy'"):
        _ = sl.Sketchy


def test_a_missing_extra_says_what_to_install():
    with pytest.raises(MissingExtraError, match=r"pip install 'sketchlearn\[dask\]'"):
        import_extra("no_such_module", "dask")
    assert issubclass(MissingExtraError, ImportError)
    assert issubclass(MissingExtraError, SketchlearnError)
