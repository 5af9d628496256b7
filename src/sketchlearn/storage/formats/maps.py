"""Feature maps in files: their description, and weights that no seed gives again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from typing_extensions import override

from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.build import build_map
from sketchlearn.files.container import Contents, canonical_json, damaged, fail
from sketchlearn.storage.formats.base import AbstractFormat
from sketchlearn.storage.headers import (
    LONG_TEXTS,
    MAP_FIELDS,
    Tensors,
    move_long_texts,
    parse_description,
    whole_text,
)

__all__ = ["FeatureMapFormat"]


@final
class FeatureMapFormat(AbstractFormat):
    """The description of a map and the weights it stores."""

    stored, kinds = AbstractFeatureMap, ("",)
    format, fields = MAP_FIELDS["format"], MAP_FIELDS

    @override
    def pack(self, obj: AbstractFeatureMap) -> Contents:
        weights = obj.weights()
        tensors = {name: weights[name] for name in obj.stored_weights}
        for name, array in tensors.items():
            if array.dtype.kind == "f":
                tensors[name] = array + 0.0  # -0.0 becomes 0.0, as in the fingerprint
        metadata = {
            "format": self.format,
            "version": str(obj.version),
            "feature_map": f"sha256:{obj.fingerprint}",
            "description": canonical_json(obj.description),
        }
        return move_long_texts(metadata, tensors)

    @override
    def unpack(
        self, fields: Mapping[str, str], tensors: Tensors, max_bytes: int
    ) -> AbstractFeatureMap:
        description = parse_description(whole_text("description", fields, tensors))
        text_tensor = LONG_TEXTS["description"][0]
        weights = {name: tensors[name] for name in tensors if name != text_tensor}
        built = build_map(description, weights, max_bytes=max_bytes)
        found = f"sha256:{built.fingerprint}"
        if str(built.version) != fields["version"]:
            raise damaged("version of the map")
        if found != fields["feature_map"]:
            fail(
                f"holds map {fields['feature_map'][:13]}.., which is {found[:13]}.. "
                "here: it was forged or damaged, or its weights were drawn by another "
                "version of NumPy (maps of version 1 only). Get the original file."
            )
        return built
