"""Estimators on the command line, by what they say of themselves.

An estimator that sets ``command``, its name here, is found: there is no list to put it
into. ``command_options`` says which of its parameters an option sets, beside those that
all estimators may have, and ``command_output`` which fitted attributes are printed.
Estimators whose ``fit_sketch`` takes ``targets`` have the option ``--target``.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any, final

import click
from click.core import ParameterSource
from typing_extensions import override

from sketchlearn.discovery import classes_declaring

__all__ = ["SET", "ModelName", "build_estimator", "given_options", "takes_targets"]

_SHARED = {
    "size": "sketch_size",
    "bounds": "bounds",
    "seed": "random_state",
    "decoder": "decoder",
}
"""Options of every estimator that has these parameters."""

SET = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other parameter of the model, as Python writes it.",
)


@final
class ModelName(click.ParamType):  # type: ignore[type-arg]
    """The name of an estimator; which there are is looked up when it is needed."""

    name = "model"

    @override
    def get_metavar(self, param: Any, ctx: Any = None) -> str:
        return "{" + "|".join(_estimators()) + "}"

    @override
    def convert(self, value: str, param: Any, ctx: Any) -> str:
        if value not in _estimators():
            self.fail(f"{value!r} is not one of {', '.join(_estimators())}.")
        return value


def build_estimator(
    model: str, options: Mapping[str, Any], settings: tuple[str, ...] = ()
) -> Any:
    """An estimator with the options that were given, and no other.

    Parameters
    ----------
    model : str
        What it is called here.
    options : mapping
        Values by option, without dashes in front; the default, if it is not given, is
        that of the estimator. One that the estimator does not have is refused.
    settings : tuple of str
        Of ``--set``.
    """
    cls = _estimators()[model]
    names, given = _parameters(cls), given_options(options)
    for option in given:
        if option not in names:
            others = [n for n, c in _estimators().items() if option in _parameters(c)]
            _refuse(option, model, others)
    chosen = {names[option]: options[option] for option in given}
    return cls(**{**chosen, **_parsed(cls, settings)})


def given_options(names: Any) -> list[str]:
    """Those that are on the command line, not left to their default."""
    context = click.get_current_context()
    return [
        name
        for name in names
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]


def takes_targets(model: str) -> bool:
    """Whether a model predicts columns from others; refuses ``--target`` if not."""
    predicts = [name for name, cls in _estimators().items() if _predicts(cls)]
    if model not in predicts and given_options(["target"]):
        _refuse("target", model, predicts)
    return model in predicts


@cache
def _estimators() -> dict[str, Any]:
    return classes_declaring("command", "sketchlearn.estimators")


def _parameters(cls: Any) -> dict[str, str]:
    """The parameter that each option of an estimator sets."""
    known = cls().get_params()
    shared = {option: name for option, name in _SHARED.items() if name in known}
    return {**shared, **getattr(cls, "command_options", {})}


def _predicts(cls: Any) -> bool:
    return "targets" in inspect.signature(cls.fit_sketch).parameters


def _refuse(option: str, model: str, others: list[str]) -> None:
    flag = "--" + option.replace("_", "-")
    raise click.UsageError(
        f"{flag} is no option of {model}: such options go with {' and '.join(others)}."
    )


def _parsed(cls: Any, settings: tuple[str, ...]) -> dict[str, Any]:
    """Values by parameter, from texts such as ``n_init=20``."""
    found, known = {}, cls().get_params()
    for text in settings:
        name, _, value = text.partition("=")
        if name not in known or not value:
            raise click.UsageError(
                f"--set {text}: not NAME=VALUE with one of {', '.join(known)}."
            )
        try:
            found[name] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            found[name] = value
    return found
