r"""A start for conditional autoencoders from which they need not learn to be linear.

With R a matrix of orthonormal rows, its first rows A as many as a code has numbers and
the others Q, the start computes

.. math::
    u \approx A (x - \tfrac12), \qquad
    \mathrm{logit}(\hat p) \propto A^\top u + Q^\top Q (\mu - \tfrac12)

with :math:`\mu` the mean that is given as a condition: what projections show of a row,
and of the mean beside them. Fresh networks find this slowly, since all orders of the
columns are alike to them. The architecture stays the paper's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.autoencoders.conditional import (
    ENCODER_PREFIX,
    RECONSTRUCTION_PREFIX,
    ConditionalAutoencoder,
)
from sketchlearn.decoders.autoencoders.conditional_spec import ConditionalSpec
from sketchlearn.errors import ConfigError

__all__ = ["start_tied"]

_GAIN = 0.25
"""Of the last norm: so small that the GELU is nearly linear, half its input."""

_LEVELS = 10
"""Stretches of columns whose mean is among the projections."""

_SLOPE = 4.0
"""Logit of a probability by its distance from one half, near one half."""


def start_tied(fresh: ConditionalAutoencoder, seed: int = 0) -> ConditionalAutoencoder:
    """Weights that project and come back, in the place of fresh ones.

    Blocks begin as the identity: their outer layers are zeros. A learned sketch is not
    read at first.

    Parameters
    ----------
    fresh : ConditionalAutoencoder
        Of any condition; not narrower than its codes, nor wider than its rows.
    seed : int
        Of the projections.

    Examples
    --------
    >>> from sketchlearn.decoders.autoencoders.conditional_spec import ConditionalSpec
    >>> spec = ConditionalSpec(64, 8, "mean", depth=1, width=48)
    >>> family = start_tied(ConditionalAutoencoder.initial(spec))
    >>> rows = np.eye(64)[:32]
    >>> scores = family.adapted(rows.mean(axis=0)).decode(np.zeros((1, 8)))[0]
    >>> bool(scores[:32].mean() > scores[32:].mean())  # columns that have ones
    True
    """
    spec = fresh.spec
    if not spec.n_components <= spec.width <= spec.n_features:
        raise ConfigError(
            "a tied start needs a width between the numbers of a code and of a row; "
            f"got {spec.n_components}, {spec.width} and {spec.n_features}."
        )
    basis = _projections(spec, seed)
    tensors: dict[str, NDArray[Any]] = dict(fresh.tensors)
    for prefix in (ENCODER_PREFIX, RECONSTRUCTION_PREFIX):
        tensors[f"{prefix}layers.norm.weight"] = np.full(spec.width, _GAIN)
        for block in range(spec.depth):
            for part in ("weight", "bias"):
                name = f"{prefix}layers.block{block}.body.outer.{part}"
                tensors[name] = np.zeros_like(fresh.tensors[name])
    return replace(
        fresh, tensors=tensors | _encoder(fresh, basis) | _decoder(fresh, basis)
    )


def _projections(spec: ConditionalSpec, seed: int) -> NDArray[np.float64]:
    """Orthonormal rows, (width, n_features): random, and the levels of stretches.

    Levels come last and among those of the mean: padding and rare ones are levels, and
    what they leave open is small.
    """
    d, width = spec.n_features, spec.width
    n_levels = min(_LEVELS, width - spec.n_components)
    stretches = np.arange(d) * n_levels // d
    levels = np.asarray(stretches[:, None] == np.arange(n_levels), np.float64)
    normal = np.random.default_rng([seed, width]).normal(size=(d, width - n_levels))
    basis = np.linalg.qr(np.hstack([levels, normal]))[0].T
    return np.roll(basis, -n_levels, axis=0)


def _encoder(
    fresh: ConditionalAutoencoder, basis: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """All projections of a row as hidden units, and the first of them as its code."""
    spec = fresh.spec
    first = np.zeros((spec.width, spec.n_features + spec.n_condition))
    first[:, : spec.n_features] = basis
    last = np.zeros((spec.n_components, spec.width))
    np.fill_diagonal(last, 2 / _GAIN)
    return {
        f"{ENCODER_PREFIX}layers.first.weight": first,
        f"{ENCODER_PREFIX}layers.first.bias": -0.5 * basis.sum(axis=1),
        f"{ENCODER_PREFIX}layers.last.weight": last,
        f"{ENCODER_PREFIX}layers.last.bias": np.zeros(spec.n_components),
    }


def _decoder(
    fresh: ConditionalAutoencoder, basis: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """Codes, which have unit size, and the other projections of the mean; and back."""
    spec, n = fresh.spec, fresh.spec.n_components
    first = np.zeros((spec.width, n + spec.n_condition))
    bias = np.zeros(spec.width)
    np.fill_diagonal(first[:n, :n], 0.5)
    if spec.condition != "none":
        first[n:, n : n + spec.n_features] = basis[n:]
        bias[n:] = -0.5 * basis[n:].sum(axis=1)
    told = spec.width if spec.condition != "none" else n
    size = 0.5 * np.sqrt(
        told / spec.width
    )  # of a hidden unit, which the norm takes off
    return {
        f"{RECONSTRUCTION_PREFIX}layers.first.weight": first,
        f"{RECONSTRUCTION_PREFIX}layers.first.bias": bias,
        f"{RECONSTRUCTION_PREFIX}layers.last.weight": _SLOPE
        * size
        * 2
        / _GAIN
        * basis.T,
        f"{RECONSTRUCTION_PREFIX}layers.last.bias": np.zeros(spec.n_features),
    }
