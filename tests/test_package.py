"""Importing is light, public names are complete, and extras fail helpfully."""

import subprocess
import sys

import pytest

import sketchlearn as sl
from sketchlearn.errors import MissingExtraError, SketchlearnError, import_extra


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


def test_importing_loads_neither_torch_nor_scikit_learn():
    heavy = ["torch", "sklearn", "scipy", "numpy", "pandas", "matplotlib", "pyarrow"]
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


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Sketchy'"):
        _ = sl.Sketchy


def test_a_missing_extra_says_what_to_install():
    with pytest.raises(MissingExtraError, match=r"pip install 'sketchlearn\[dask\]'"):
        import_extra("no_such_module", "dask")
    assert issubclass(MissingExtraError, ImportError)
    assert issubclass(MissingExtraError, SketchlearnError)
