"""Training the paper's networks for PCA at every sketch size of the comparison."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from sketchlearn.experiments.pca.comparison import PCA_SIZES
from sketchlearn.experiments.pca.methods import LARGEST_LEARNED, weights_file
from sketchlearn.files.weights import save_weights
from sketchlearn.meta.config import RunConfig
from sketchlearn.meta.datasets import load_folder
from sketchlearn.nested_sqnet import NestedSQNet
from sketchlearn.registry import load_model
from sketchlearn.sqnet import SQNet

__all__ = ["train_networks"]

Say = Callable[[str], object]


def train_networks(
    config: RunConfig,
    data: str | os.PathLike[str],
    weights: str | os.PathLike[str],
    *,
    sizes: Sequence[int] = PCA_SIZES,
    say: Say = lambda text: None,
) -> bool:
    """Train the paper's SQNet for every size that has no weights yet.

    Only datasets of the training split are read. A training that was interrupted goes
    on where it stopped. A configuration with ``nested`` gives one file for all sizes;
    one that ends before the largest of ``sizes`` is trained again.

    Parameters
    ----------
    config : RunConfig
        That of ``"pca-sqnet"``; its sketch size is replaced.
    data : path
        Holds ``MANIFEST.json``.
    weights : path
        Where to put ``pca-sqnet.safetensors``, or ``pca-sqnet-{size}.safetensors`` of
        networks of one size; made if it does not exist.
    sizes : sequence of int
        Sketch sizes.
    say : callable
        Receives lines of progress.

    Returns
    -------
    bool
        False if the training was interrupted.
    """
    # Training needs torch, which nothing else here does.
    runs = importlib.import_module("sketchlearn.meta.runs")
    folder = Path(weights)
    folder.mkdir(parents=True, exist_ok=True)
    datasets = load_folder(data, split="train")
    learned = [size for size in sizes if size <= LARGEST_LEARNED]
    files = {size: weights_file(size) for size in learned}
    if config.model.get("nested") and learned:
        files = {max(learned): weights_file()}
    for size, name in files.items():
        path = folder / name
        if path.is_file():
            found = _largest_size(path)
            if found >= size:
                say(f"{path} exists: not trained again.")
                continue
            say(f"{path} has the sizes up to {found} of {size}: trained again.")
        say(f"training {path.name} ...")
        sized = replace(config, model={**config.model, "sketch_size": size})
        run = path.with_name(f"{path.name}.{size}.run")
        done = runs.train_run(sized, datasets, folder=run)
        if done.result.stopped == "interrupt":
            return False
        save_weights(done.model.to_weights(done.card), path)
    return True


def _largest_size(path: Path) -> int:
    """The sketch size of a file of networks, the largest of one for all sizes."""
    net: SQNet | NestedSQNet = load_model(path)
    return net.sketch_size if isinstance(net, NestedSQNet) else net.spec.sketch_size
