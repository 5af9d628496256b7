"""A module in the folder of formats is all that a new kind of file needs."""

from pathlib import Path

import pytest

from sketchlearn.errors import UnsavableError
from sketchlearn.files.container import encode
from sketchlearn.storage import sketches
from sketchlearn.storage.formats import base
from sketchlearn.storage.formats.base import AbstractFormat, all_formats
from sketchlearn.storage.sketches import dumps, loads


def test_every_module_of_the_folder_brings_a_format():
    modules = {path.stem for path in Path(base.__file__).parent.glob("[a-z]*.py")}

    found = {type(one).__module__.rpartition(".")[2] for one in all_formats()}

    assert found == modules - {"base"}


def test_no_two_formats_have_a_name_in_common():
    names = [(one.format, kind) for one in all_formats() for kind in one.kinds]

    assert len(set(names)) == len(names)


class Greeting:
    def __init__(self, text):
        self.text = text


def test_a_new_format_is_written_and_read_without_touching_another(monkeypatch):
    with pytest.raises(UnsavableError, match="What can be saved: AbstractFeatureMap"):
        dumps(Greeting("hello"))

    class GreetingFormat(AbstractFormat):
        stored, kinds, format = Greeting, ("",), "sketchlearn-greeting"
        fields = {"format": format, "version": "1", "text": "[a-z]*"}

        def pack(self, obj):
            fields = {"format": self.format, "version": "1", "text": obj.text}
            return fields, {}

        def unpack(self, fields, tensors, max_bytes):
            return Greeting(fields["text"])

    formats = (*all_formats(), GreetingFormat())
    monkeypatch.setattr(sketches, "all_formats", lambda: formats)

    assert loads(dumps(Greeting("hello"))).text == "hello"
    forged = {"format": "sketchlearn-greeting", "version": "1", "text": "HELLO"}
    with pytest.raises(ValueError, match="header field"):
        loads(encode((forged, {}), None, ""))
