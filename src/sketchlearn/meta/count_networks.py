"""The paper's networks of item counts by name, as settings of a training.

A name is a Sketch Network: ``"linear"``, ``"ternary"``, ``"binary"``, ``"non-linear"``,
``"parallel"`` (a linear one on each tenth of the items), or ``"random"`` features under
a Query Network that is learned (RFQNet). What is trained, and how long, comes with the
configuration; nothing is trained here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, get_args

from sketchlearn.errors import ConfigError
from sketchlearn.features.activation import Activation
from sketchlearn.meta.config import RunConfig
from sketchlearn.networks.forward import NetworkKind

__all__ = ["PARALLEL_WINDOWS", "CountNetwork", "paired_kind", "with_network"]

CountNetwork = Literal[
    "linear", "ternary", "binary", "non-linear", "parallel", "random"
]

PARALLEL_WINDOWS = 10
"""Windows of the parallel networks: each takes 10 % of the items."""


def paired_kind(goal: str, pooling: str) -> NetworkKind:
    """Architecture of a non-linear Sketch Network that the paper found best.

    For frequencies that is (a), ``"resnet"``; for membership (b), ``"transformer"``,
    with mean, min, max and log-sum-exp, and (a) with p-norms.

    Parameters
    ----------
    goal : {"frequency", "membership"}
        What is to be predicted.
    pooling : str
        As for :func:`~sketchlearn.sketch_rows`.

    References
    ----------
    Paper, hyperparameter search for SQNet and RFQNet.

    Examples
    --------
    >>> paired_kind("membership", "min"), paired_kind("membership", "p-norm:3")
    ('transformer', 'resnet')
    """
    if goal == "membership" and not pooling.startswith("p-norm"):
        return "transformer"
    return "resnet"


def with_network(
    config: RunConfig,
    network: CountNetwork,
    *,
    pooling: str = "mean",
    sketch_size: int | None = None,
    activation: Activation = "gelu",
    variance: float = 0.1,
) -> RunConfig:
    """A configuration of the task ``frequency`` or ``membership`` for a named network.

    Parameters
    ----------
    config : RunConfig
        Such as ``"frequency-sqnet"``: Query Network, sets and training. Its
        Query Network also gives depth and width of a non-linear Sketch Network.
    network : str
        One of ``CountNetwork``.
    pooling : str
        As for :func:`~sketchlearn.sketch_rows`; random features take the mean.
    sketch_size : int, optional
        That of the configuration by default.
    activation, variance : str and float
        Of random features.

    Examples
    --------
    >>> from sketchlearn.meta.config import TrainConfig
    >>> config = RunConfig(task="frequency", train=TrainConfig(steps=1))
    >>> with_network(config, "ternary").model["feature"]
    {'kind': 'ternary'}
    """
    if network not in get_args(CountNetwork):
        raise ConfigError(
            f"network must be one of {', '.join(get_args(CountNetwork))}; got "
            f"{network!r}."
        )
    decoder = dict(config.model.get("decoder", {}))
    feature: dict[str, Any] = {}
    random: dict[str, Any] = {}
    match network:
        case "ternary" | "binary":
            feature = {"kind": network}
        case "parallel":
            feature["windows"] = decoder["windows"] = PARALLEL_WINDOWS
        case "non-linear":
            sizes = {name: decoder.get(name, 0) for name in ("depth", "width")}
            feature = {"kind": paired_kind(config.task, pooling), **sizes}
        case "random":
            random = {"activation": activation, "variance": variance}
    model = {**config.model, "feature": feature, "decoder": decoder, "random": random}
    model["pooling"] = pooling
    if sketch_size is not None:
        model["sketch_size"] = sketch_size
    return replace(config, model=model)
