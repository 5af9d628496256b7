"""Train every network of the paper's streaming experiments, one after the other.

Into a folder, for `sketchlearn reproduce frequency --weights FOLDER` (and membership):
the Sketch Networks (linear, ternary, binary, non-linear, parallel windows), all
poolings with the architecture that the appendix pairs them with, and random features
of all nine activations, each with the best of four variances after a fifth of the time.
What the folder has already is not trained again, and an interrupted training goes on.

usage: python3 dev.py run benchmarks/count_networks.py FOLDER
           [--seconds 50] [--question frequency|membership] [--only WORD] [--list]
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import get_args

import torch

from sketchlearn.features.activation import Activation
from sketchlearn.files.weights import save_weights
from sketchlearn.meta.config import load_config
from sketchlearn.meta.count_networks import with_network
from sketchlearn.meta.runs import train_run

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
POWERS = (1, 2, 3, 5, 10)
POOLINGS = ("min", "max", "log-sum-exp", *(f"p-norm:{power}" for power in POWERS))
VARIANCES = (0.005, 0.05, 0.3, 1.0)
BEST_POOLED = ("membership", "min")
"""What the paper found best for membership."""

LONG = 6
"""Times the seconds of the others, for the nets that are compared with ours."""


def networks(question):
    """Name, settings of ``with_network`` and how many times the seconds."""
    for size in (100, 10):
        for kind in ("linear", "ternary", "binary", "parallel", "non-linear"):
            if size == 10 and kind in ("binary", "parallel"):
                continue
            yield f"{kind}-{size}", {"network": kind, "sketch_size": size}, LONG
    for activation in get_args(Activation):
        yield (
            f"random-{activation}",
            {"network": "random", "activation": activation},
            1,
        )
    yield "random-gelu-10", {"network": "random", "sketch_size": 10}, 1
    for pooling in POOLINGS:
        name, is_best = pooling.replace(":", "-"), (question, pooling) == BEST_POOLED
        settings = {"network": "non-linear", "pooling": pooling}
        yield f"pooled-{name}", settings, LONG if is_best else 1


def trained(config, seconds, folder):
    config = replace(config, train=replace(config.train, seconds=seconds))
    return train_run(config, [], folder=folder)


def train_one(config, path, settings, seconds):
    """Train and write one; random features first at each variance, shortly."""
    if settings["network"] == "random":
        tried = {}
        for variance in VARIANCES:
            one = with_network(config, **settings, variance=variance)
            run = trained(one, seconds / 5, path.with_suffix(f".{variance}.run"))
            tried[variance] = run.result.best_score
        settings = {**settings, "variance": min(tried, key=tried.get)}
        print("  variances:", {v: f"{score:.2e}" for v, score in tried.items()})
    run = trained(with_network(config, **settings), seconds, path.with_suffix(".run"))
    if run.result.stopped == "interrupt":
        raise KeyboardInterrupt
    save_weights(run.model.to_weights({**run.card, "preset": "cpu"}), path)
    score = run.result.best_score
    print(f"  {run.result.steps} steps, score {score:.2e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=50.0)
    parser.add_argument("--question", choices=("frequency", "membership"))
    parser.add_argument("--only", default="")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    questions = [options.question] if options.question else ["frequency", "membership"]
    for question in questions:
        config = load_config(CONFIGS / f"{question}-sqnet.toml", "cpu")
        for name, settings, times in networks(question):
            path = options.folder / f"{question}-{name}.safetensors"
            if path.exists() or options.only not in path.name:
                continue
            print(path.name, flush=True)
            if not options.list:
                train_one(config, path, settings, times * options.seconds)


if __name__ == "__main__":
    main()
