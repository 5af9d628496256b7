"""Settings of a training run, as values and as TOML files with presets.

The configurations of what the package ships, and of the paper's networks, are files in
its folder ``configs`` and are known by name.

What a module or a problem does with its settings is not known here: unknown keys are
refused where they would be used.
"""

from __future__ import annotations

import importlib.resources
import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from typing import Any, Literal, Self, final, get_args

from sketchlearn.errors import ConfigError, MissingFileError
from sketchlearn.files.durable import open_regular, path_text
from sketchlearn.meta.settings import refuse_unknown, require_settings

__all__ = [
    "DataConfig",
    "RunConfig",
    "TrainConfig",
    "list_configs",
    "load_config",
]

Optimizer = Literal["adam", "adamw", "radam"]
Schedule = Literal["constant", "cosine", "linear"]

CONFIGS: Traversable = importlib.resources.files("sketchlearn") / "configs"
"""Folder of the configurations that come with the package."""

_TABLES = ("data", "model", "problem", "train")
_TOML = ".toml"


@final
@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How long and how fast to train; at least one of ``steps`` and ``seconds``.

    Examples
    --------
    >>> config = TrainConfig(steps=1000, learning_rate=3e-5, warmup_steps=10)
    >>> config.rate_at(0.5), config.optimizer
    (3e-05, 'adam')
    """

    steps: int | None = None
    """Stop after this many steps, counted over all resumptions."""

    seconds: float | None = None
    """Stop after this much training time, counted over all resumptions."""

    optimizer: Optimizer = "adam"
    """``"adam"``, ``"adamw"`` or ``"radam"``."""

    learning_rate: float = 1e-3
    """Largest learning rate."""

    schedule: Schedule = "constant"
    """How the rate falls from its largest value: not, along a cosine to 0, or along a
    line to 0, at the end of ``steps`` or ``seconds``, whichever comes first."""

    warmup_steps: int = 0
    """The rate rises along a line during this many steps; any schedule."""

    weight_decay: float = 0.0
    """As the optimizer understands it: decoupled for ``"adamw"``."""

    clip_norm: float | None = None
    """Gradients of a larger L2 norm are scaled down to it."""

    accumulate: int = 1
    """Batches drawn for one step; their losses are averaged."""

    ema: float | None = None
    """Decay of a running mean of the weights, which is then validated and kept."""

    validate_every: int = 100
    """Steps between two validations."""

    patience: int | None = None
    """Stop after this many validations in a row without a better score."""

    checkpoint_every_seconds: float = 120.0
    """Time between two checkpoints; 0 writes one after each step."""

    seed: int = 0
    """Seed of all batches and of all random layers."""

    device: str = "cpu"
    """Where the module is trained, as PyTorch names it, such as ``"cuda"``."""

    def __post_init__(self) -> None:
        if self.steps is None and self.seconds is None:
            raise ConfigError(
                "a training needs an end: set steps, seconds or both; got neither."
            )
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ConfigError(
                    f"{name} must be one of {', '.join(choices)}; "
                    f"got {getattr(self, name)!r}."
                )
        for name, (low, high, whole) in _RANGES.items():
            _require_number(name, getattr(self, name), low, high, whole)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Build from a table of a TOML file; unknown keys are refused."""
        require_settings(settings, cls, "[train]")
        return cls(**settings)

    def rate_at(self, progress: float, step: int | None = None) -> float:
        """Learning rate when a fraction ``progress`` of the run is done.

        ``step`` is the number of steps done, for the warm-up.
        """
        shapes = {
            "constant": 1.0,
            "cosine": 0.5 * (1 + math.cos(math.pi * min(progress, 1.0))),
            "linear": 1 - min(progress, 1.0),
        }
        warm = 1.0
        if step is not None and step < self.warmup_steps:
            warm = (step + 1) / self.warmup_steps
        return self.learning_rate * warm * shapes[self.schedule]


_CHOICES = {"optimizer": get_args(Optimizer), "schedule": get_args(Schedule)}
_RANGES: dict[str, tuple[float, float, bool]] = {
    "steps": (0, math.inf, True),
    "seconds": (0, math.inf, False),
    "learning_rate": (0, math.inf, False),
    "warmup_steps": (0, math.inf, True),
    "weight_decay": (0, math.inf, False),
    "clip_norm": (0, math.inf, False),
    "accumulate": (1, math.inf, True),
    "ema": (0, 1, False),
    "validate_every": (1, math.inf, True),
    "patience": (1, math.inf, True),
    "checkpoint_every_seconds": (0, math.inf, False),
    "seed": (0, 2**63 - 1, True),
}


@final
@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which datasets are trained on and which are held out."""

    only: Sequence[str] = ()
    """Names of the datasets to use, of either split of a folder; none for all of its
    training datasets. The paper's autoencoders learn from MNIST, on which others are
    tested."""

    held_out: float | Sequence[str] = 0.2
    """Fraction of the datasets kept for validation, or their names."""

    seed: int = 0
    """Seed of that draw."""

    real_only: bool = False
    """Leave out simulated data and stand-ins."""

    leave_out: Sequence[str] = ()
    """Names of datasets that are neither trained on nor held out."""

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Build from a table of a TOML file; unknown keys are refused."""
        require_settings(settings, cls, "[data]")
        return cls(**settings)


@final
@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What a configuration file says, for one preset."""

    task: str
    """Name of a task of :mod:`sketchlearn.meta.tasks`."""

    train: TrainConfig
    """Settings of the trainer."""

    data: DataConfig = field(default_factory=DataConfig)
    """Training and held-out datasets."""

    model: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the module, as its task understands them."""

    problem: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the problem, as its task understands them."""


def list_configs() -> dict[str, tuple[str, ...]]:
    """Configurations that come with the package, by name, with their presets.

    Examples
    --------
    >>> list_configs()["pca-equivariant"]
    ('cpu', 'paper', 'tiny')
    """
    files = sorted(file.name for file in CONFIGS.iterdir() if _TOML in file.name)
    return {
        name.removesuffix(_TOML): tuple(_presets(_read(name.removesuffix(_TOML))))
        for name in files
    }


def load_config(path: str | os.PathLike[str], preset: str) -> RunConfig:
    """Read one preset of a configuration.

    The file has a key ``task``, tables ``[data]``, ``[model]``, ``[problem]`` and
    ``[train]`` for what all presets share, and for each preset tables such as
    ``[cpu.train]``, whose keys win over the shared ones.

    Parameters
    ----------
    path : str or path
        A TOML file, or one of the names of :func:`list_configs`. Cards of some models
        say ``configs/NAME.toml``: where there is no such file, NAME is meant.
    preset : str
        Which preset, such as ``"cpu"`` or ``"paper"``.

    Examples
    --------
    >>> load_config("pca-sqnet", "paper").train.learning_rate
    3e-05
    """
    name, content = path_text(path), _read(path)
    presets = _presets(content)
    if preset not in presets:
        raise ConfigError(
            f"{name!r} has no preset {preset!r}; "
            f"it has: {', '.join(presets) or 'none'}."
        )
    refuse_unknown(content, ["task", *_TABLES, *presets], repr(name))
    refuse_unknown(presets[preset], _TABLES, f"[{preset}]")
    if not isinstance(content.get("task"), str):
        raise ConfigError(f"{name!r} has no key task = '...'; name the task to train.")
    tables = []
    for table in _TABLES:
        shared, own = content.get(table, {}), presets[preset].get(table, {})
        if not (isinstance(shared, dict) and isinstance(own, dict)):
            raise ConfigError(f"[{table}] of {name!r} must be a table of settings.")
        tables.append({**shared, **own})
    data, model, problem, training = tables
    return RunConfig(
        task=content["task"],
        data=DataConfig.from_dict(data),
        model=model,
        problem=problem,
        train=TrainConfig.from_dict(training),
    )


def _read(source: str | os.PathLike[str]) -> dict[str, Any]:
    """What a file says, or a configuration of the package."""
    name = path_text(source)
    folder, base = os.path.split(name)
    packaged = CONFIGS / f"{base.removesuffix(_TOML)}{_TOML}"
    is_name = isinstance(source, str) and not folder and not name.endswith(_TOML)
    is_old = folder == CONFIGS.name and base == packaged.name  # as in older cards
    try:
        if (is_name or is_old and not os.path.lexists(name)) and packaged.is_file():
            return tomllib.loads(packaged.read_text("utf-8"))
        with open_regular(name) as stream:
            return tomllib.load(stream)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{name!r} is not a TOML file: {error}.") from error
    except MissingFileError as error:
        raise MissingFileError(
            f"there is no file {name!r}, and no such configuration in the package. It "
            f"has: {', '.join(list_configs())}."
        ) from error


def _presets(content: Mapping[str, Any]) -> dict[str, Any]:
    """Tables that are none of those that all presets share."""
    return {
        key: value
        for key, value in content.items()
        if isinstance(value, dict) and key not in _TABLES
    }


def _require_number(
    name: str, value: Any, low: float, high: float, whole: bool
) -> None:
    if value is None and name in ("steps", "seconds", "clip_norm", "ema", "patience"):
        return
    kinds = (int,) if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        kind = "a whole number" if whole else "a number"
        raise ConfigError(f"{name} must be {kind}; got {value!r}.")
    if not low <= value <= high or math.isnan(value):
        raise ConfigError(f"{name} must lie between {low} and {high}; got {value!r}.")
