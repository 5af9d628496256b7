"""Whatever is given for a path, the only errors are ours, and say what is wrong."""

import os

import numpy as np
import pytest

import sketchlearn as sl
from sketchlearn.errors import (
    FileAccessError,
    ForbiddenFileError,
    MissingFileError,
    SketchFileError,
    SketchlearnError,
)
from sketchlearn.files import durable
from sketchlearn.files.weights import Weights, load_weights, save_weights
from sketchlearn.meta.config import load_config
from sketchlearn.meta.datasets import load_folder

PHI = sl.MomentFeatures(2)
WEIGHTS = Weights("sqnet", {}, {"w": np.ones(1, np.float32)})
BUDGET = {"epsilon": 1.0, "delta": 1e-6}

NAMES = [5, None, 1.5, True, [], "a\0b", "a\0b.safetensors", "\ud800", "x" * 5000, ""]
NAMES += ["no/such/folder/x.safetensors", "file/inside", b"\0", ("a", "b"), object()]

USES = {
    "load": sl.load,
    "save": lambda name: sl.save(PHI, name),
    "load_model": sl.load_model,
    "SQNet.load": sl.SQNet.load,
    "load_weights": load_weights,
    "save_weights": lambda name: save_weights(WEIGHTS, name),
    "key": sl.PartyKey.load,
    "save key": lambda name: sl.PartyKey(bytes(32)).save(name),
    "config": lambda name: load_config(name, "tiny"),
    "datasets": load_folder,
    "ledger": lambda name: sl.Ledger(name, **BUDGET),
    "open ledger": sl.Ledger.open,
}


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:20])
@pytest.mark.parametrize("use", USES)
def test_what_is_no_path_is_refused_by_an_error_of_ours(
    use, name, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(SketchlearnError):
        USES[use](name)


@pytest.mark.parametrize("name", [n for n in NAMES if isinstance(n, str) and n])
def test_rows_that_have_no_path_are_refused_by_an_error_of_ours(name):
    with pytest.raises(SketchlearnError):
        sl.open_rows(name)


@pytest.mark.parametrize("data", ["x", 5, None, [1, 2], {}, object()])
def test_what_is_no_bytes_is_refused(data):
    with pytest.raises(SketchFileError, match="reads the bytes that dumps made"):
        sl.loads(data)
    view = memoryview(sl.dumps(PHI))
    assert sl.loads(view) == sl.loads(bytearray(view)) == PHI


def test_a_missing_folder_and_one_in_the_place_of_a_file_are_told(tmp_path):
    with pytest.raises(MissingFileError, match="there is no folder"):
        sl.save(PHI, tmp_path / "none" / "a.map")
    with pytest.raises(SketchFileError, match="not a regular file"):
        sl.save(PHI, tmp_path)
    assert sl.load(os.fsencode(_saved(tmp_path))) == PHI


def _saved(folder):
    sl.save(PHI, folder / "a.map")
    return folder / "a.map"


@pytest.mark.parametrize(
    ("found", "kind"),
    [(PermissionError(13, "no"), ForbiddenFileError), (OSError(5, "eio"), OSError)],
)
def test_what_the_system_refuses_is_an_error_of_ours_and_of_its_kind(
    found, kind, tmp_path, monkeypatch
):
    path = _saved(tmp_path)

    def fail(*arguments):
        raise found

    monkeypatch.setattr(durable.os, "open", fail)
    for call in (lambda: sl.load(path), lambda: sl.save(PHI, path)):
        with pytest.raises(FileAccessError) as caught:
            call()
        assert isinstance(caught.value, kind)
        assert caught.value.errno == found.errno
