"""Compressive learning: a dataset becomes one small exact vector, the sketch.

``rows → scaling → features → pooling → Sketch → decoder → estimator``. Everything
public is here; modules are imported when a name is first used, so importing
sketchlearn costs nothing and never loads torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from sketchlearn.version import __version__ as __version__

# Public names: written by `python3 dev.py names`.
if TYPE_CHECKING:
    from sketchlearn.decoders.counts.item_prior import ItemPrior
    from sketchlearn.decoders.counts.packing import PackedCounters
    from sketchlearn.decoders.counts.table_sizes import suggest_size
    from sketchlearn.engines.parts import merge, partial_sketch
    from sketchlearn.engines.sketch_items import sketch_items
    from sketchlearn.engines.sketch_rows import sketch_rows
    from sketchlearn.estimators.autoencoder import CompressiveAutoencoder
    from sketchlearn.estimators.binary_encoder import BinaryEncoder
    from sketchlearn.estimators.classifier import CompressiveClassifier
    from sketchlearn.estimators.frequency import FrequencyEstimator
    from sketchlearn.estimators.item_answers import ItemCounts, ItemMembership
    from sketchlearn.estimators.kmeans import CompressiveKMeans
    from sketchlearn.estimators.membership import MembershipEstimator
    from sketchlearn.estimators.mixture import CompressiveGaussianMixture
    from sketchlearn.estimators.pca import CompressivePCA
    from sketchlearn.estimators.ridge import CompressiveRidge
    from sketchlearn.features.activation import ActivationFeatures
    from sketchlearn.features.base import AbstractFeatureMap
    from sketchlearn.features.cells import CellFeatures
    from sketchlearn.features.clipping import clipped
    from sketchlearn.features.composition import ConcatenatedFeatures
    from sketchlearn.features.cost import allow_bytes
    from sketchlearn.features.counters import CounterFeatures
    from sketchlearn.features.cross_moments import CrossMomentFeatures
    from sketchlearn.features.fourier import FourierFeatures
    from sketchlearn.features.harmonics import HarmonicFeatures
    from sketchlearn.features.hashing import (
        BloomFeatures,
        CountMinFeatures,
        CountSketchFeatures,
    )
    from sketchlearn.features.joint_counts import JointCountFeatures
    from sketchlearn.features.moments import MomentFeatures
    from sketchlearn.features.network import NetworkFeatures
    from sketchlearn.features.nystrom import NystromFeatures
    from sketchlearn.features.quadratic import QuadraticFeatures
    from sketchlearn.features.scaling import Scaling
    from sketchlearn.features.table import TableFeatures
    from sketchlearn.nested_sqnet import NestedSQNet
    from sketchlearn.parties.combine import combine
    from sketchlearn.parties.keys import PartyKey
    from sketchlearn.parties.session import Session
    from sketchlearn.parties.shares import Share, contribute
    from sketchlearn.plans.packed_counters import pack_counters
    from sketchlearn.privacy.audit import AuditReport, audit
    from sketchlearn.privacy.ledger import Ledger
    from sketchlearn.privacy.release import release, release_by_label
    from sketchlearn.privacy.released import PrivateSketch, merge_disjoint
    from sketchlearn.privacy.statement import PrivacyStatement
    from sketchlearn.registry import list_models, load_model
    from sketchlearn.rows.keys import ItemKey
    from sketchlearn.rows.open_items import open_items
    from sketchlearn.rows.open_rows import open_rows
    from sketchlearn.rows.vocabulary import Vocabulary
    from sketchlearn.sketching.sketch import Sketch
    from sketchlearn.sqnet import SQNet
    from sketchlearn.sqnet_spec import SQNetSpec
    from sketchlearn.storage.sketches import dumps, load, loads, save

_HOMES = {
    "AbstractFeatureMap": "features.base",
    "ActivationFeatures": "features.activation",
    "AuditReport": "privacy.audit",
    "BinaryEncoder": "estimators.binary_encoder",
    "BloomFeatures": "features.hashing",
    "CellFeatures": "features.cells",
    "CompressiveAutoencoder": "estimators.autoencoder",
    "CompressiveClassifier": "estimators.classifier",
    "CompressiveGaussianMixture": "estimators.mixture",
    "CompressiveKMeans": "estimators.kmeans",
    "CompressivePCA": "estimators.pca",
    "CompressiveRidge": "estimators.ridge",
    "ConcatenatedFeatures": "features.composition",
    "CountMinFeatures": "features.hashing",
    "CountSketchFeatures": "features.hashing",
    "CounterFeatures": "features.counters",
    "CrossMomentFeatures": "features.cross_moments",
    "FourierFeatures": "features.fourier",
    "FrequencyEstimator": "estimators.frequency",
    "HarmonicFeatures": "features.harmonics",
    "ItemCounts": "estimators.item_answers",
    "ItemKey": "rows.keys",
    "ItemMembership": "estimators.item_answers",
    "ItemPrior": "decoders.counts.item_prior",
    "JointCountFeatures": "features.joint_counts",
    "Ledger": "privacy.ledger",
    "MembershipEstimator": "estimators.membership",
    "MomentFeatures": "features.moments",
    "NestedSQNet": "nested_sqnet",
    "NetworkFeatures": "features.network",
    "NystromFeatures": "features.nystrom",
    "PackedCounters": "decoders.counts.packing",
    "PartyKey": "parties.keys",
    "PrivacyStatement": "privacy.statement",
    "PrivateSketch": "privacy.released",
    "QuadraticFeatures": "features.quadratic",
    "SQNet": "sqnet",
    "SQNetSpec": "sqnet_spec",
    "Scaling": "features.scaling",
    "Session": "parties.session",
    "Share": "parties.shares",
    "Sketch": "sketching.sketch",
    "TableFeatures": "features.table",
    "Vocabulary": "rows.vocabulary",
    "allow_bytes": "features.cost",
    "audit": "privacy.audit",
    "clipped": "features.clipping",
    "combine": "parties.combine",
    "contribute": "parties.shares",
    "dumps": "storage.sketches",
    "list_models": "registry",
    "load": "storage.sketches",
    "load_model": "registry",
    "loads": "storage.sketches",
    "merge": "engines.parts",
    "merge_disjoint": "privacy.released",
    "open_items": "rows.open_items",
    "open_rows": "rows.open_rows",
    "pack_counters": "plans.packed_counters",
    "partial_sketch": "engines.parts",
    "release": "privacy.release",
    "release_by_label": "privacy.release",
    "save": "storage.sketches",
    "sketch_items": "engines.sketch_items",
    "sketch_rows": "engines.sketch_rows",
    "suggest_size": "decoders.counts.table_sizes",
}

__all__ = [
    "AbstractFeatureMap",
    "ActivationFeatures",
    "AuditReport",
    "BinaryEncoder",
    "BloomFeatures",
    "CellFeatures",
    "CompressiveAutoencoder",
    "CompressiveClassifier",
    "CompressiveGaussianMixture",
    "CompressiveKMeans",
    "CompressivePCA",
    "CompressiveRidge",
    "ConcatenatedFeatures",
    "CountMinFeatures",
    "CountSketchFeatures",
    "CounterFeatures",
    "CrossMomentFeatures",
    "FourierFeatures",
    "FrequencyEstimator",
    "HarmonicFeatures",
    "ItemCounts",
    "ItemKey",
    "ItemMembership",
    "ItemPrior",
    "JointCountFeatures",
    "Ledger",
    "MembershipEstimator",
    "MomentFeatures",
    "NestedSQNet",
    "NetworkFeatures",
    "NystromFeatures",
    "PackedCounters",
    "PartyKey",
    "PrivacyStatement",
    "PrivateSketch",
    "QuadraticFeatures",
    "SQNet",
    "SQNetSpec",
    "Scaling",
    "Session",
    "Share",
    "Sketch",
    "TableFeatures",
    "Vocabulary",
    "allow_bytes",
    "audit",
    "clipped",
    "combine",
    "contribute",
    "dumps",
    "list_models",
    "load",
    "load_model",
    "loads",
    "merge",
    "merge_disjoint",
    "open_items",
    "open_rows",
    "pack_counters",
    "partial_sketch",
    "release",
    "release_by_label",
    "save",
    "sketch_items",
    "sketch_rows",
    "suggest_size",
]
# End of the public names.


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sketchlearn' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"sketchlearn.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
