"""Networks of item counts: frequencies, and which items there are at all.

They are trained on Zipf laws, so that these tasks take no datasets (paper, data
streaming).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sketchlearn.meta.config import RunConfig
from sketchlearn.meta.count_sets import CountProblem, Goal
from sketchlearn.meta.datasets import MetaDataset
from sketchlearn.meta.matched_start import start_matched
from sketchlearn.meta.settings import require_settings
from sketchlearn.meta.sqnet import TrainableSQNet
from sketchlearn.meta.tasks.base import Task
from sketchlearn.meta.zipf_sets import ZipfSets
from sketchlearn.sqnet import SQNet
from sketchlearn.sqnet_spec import SQNetSpec

__all__ = ["FREQUENCY_TASK", "MEMBERSHIP_TASK"]


def _build(
    goal: Goal,
    config: RunConfig,
    training: Sequence[MetaDataset],
    held_out: Sequence[MetaDataset],
) -> tuple[TrainableSQNet, CountProblem]:
    settings = dict(config.problem)
    matched = settings.pop("matched_start", False)
    require_settings({"matched_start": matched}, None, "[problem]", matched_start=bool)
    sets = ZipfSets.from_dict(settings)
    spec = SQNetSpec.from_dict({"n_features": sets.n_features, **config.model})
    start = SQNet.initial(spec, config.train.seed)
    model = TrainableSQNet.thaw(start_matched(start) if matched else start)
    return model, CountProblem(goal, sets, with_rows=not model.reads_means)


FREQUENCY_TASK = Task("frequency", partial(_build, "frequency"), takes_datasets=False)
MEMBERSHIP_TASK = Task(
    "membership", partial(_build, "membership"), takes_datasets=False
)
