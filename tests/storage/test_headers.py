"""Headers have the limits they always had: they are part of the format."""

import inspect
import io

import numpy as np
import pytest

from sketchlearn.errors import SketchFileError
from sketchlearn.files import container
from sketchlearn.files.container import decode, encode, is_shallow
from sketchlearn.files.weights import load_weights
from sketchlearn.storage.headers import features_of, move_long_texts, whole_text
from sketchlearn.storage.sketches import load, loads


@pytest.mark.parametrize(
    ("field", "tensor", "room"),
    [
        ("description", "description.json", 16_384),
        ("columns", "columns.json", 4096),
        ("lineage", "lineage.txt", 256 * 33 + 1),
    ],
)
def test_a_text_is_moved_out_of_the_header_at_the_length_it_always_was(
    field, tensor, room
):
    longest = "x" * (room - 2)  # and two quotes
    assert move_long_texts({field: longest}, {}) == ({field: longest}, {})

    fields, tensors = move_long_texts({field: longest + "x"}, {})
    assert fields == {field: ""}
    assert tensors[tensor].dtype == np.uint8
    assert whole_text(field, fields, tensors) == longest + "x"


def test_a_header_has_at_most_65536_bytes():
    fields = {"format": "sketchlearn-x", "version": "1", "text": ""}
    room = 65_536 - len(encode((fields, {}), None, "")) + 8
    fits = encode(({**fields, "text": "x" * room}, {}), None, "")

    assert len(fits) == 65_536 + 8
    assert decode(io.BytesIO(fits), len(fits), None, len(fits))[0]["text"] == "x" * room
    with pytest.raises(SketchFileError, match="header of more than 65536 bytes"):
        encode(({**fields, "text": "x" * (room + 8)}, {}), None, "")
    claim = (65_536 + 8).to_bytes(8, "little") + b"{" + b" " * (65_536 + 7)
    with pytest.raises(SketchFileError, match="not a sketch or map file"):
        decode(io.BytesIO(claim), len(claim), None, len(claim))


def test_a_sketch_with_more_than_two_to_the_24_numbers_is_refused_by_its_size_alone():
    with pytest.raises(SketchFileError, match="at most 16777216"):
        features_of({"dim": str(2**24 + 1)}, {})
    with pytest.raises(KeyError):  # the size is well, and the rest is looked for
        features_of({"dim": str(2**24)}, {})


@pytest.mark.parametrize("depth", [32, 33])
def test_32_values_may_be_inside_one_another(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    assert is_shallow(value) is (depth == 32)


@pytest.mark.parametrize("function", [load, loads, load_weights])
def test_files_beyond_a_gibibyte_are_read_only_on_request(function):
    assert inspect.signature(function).parameters["max_bytes"].default == 2**30


def test_a_tensor_has_at_most_eight_sides():
    assert container._is_shape([1] * 8)
    assert not container._is_shape([1] * 9)
