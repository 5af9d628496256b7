r"""A few rows in place of many: the sketches of numerical linear algebra.

Baselines that spend a budget of m numbers on :math:`m / d` rows instead of on features:
a uniform sample of the rows, or random combinations :math:`SX` of them with
:math:`E[S^\top S] = I`. Either way

.. math:: \hat R = \tfrac1N\,(SX)^\top (SX), \qquad E[\hat R] = \tfrac1N X^\top X .

Projections are linear in the rows and merge by adding them up, but what becomes of a
row depends on its number in the whole: every part must be told where it begins. A
sample is raw rows and does not merge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, final, get_args

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import FeatureMapError
from sketchlearn.features.arguments import require_positive_int
from sketchlearn.rows.open_rows import open_rows

__all__ = ["ProjectionLaw", "ReducedRows", "project_rows", "sample_rows"]

ProjectionLaw = Literal["gaussian", "sparse"]

_DRAWN_TOGETHER = 1024
"""Rows whose columns of S are drawn from one generator: part of what a seed means."""


@final
@dataclass(frozen=True, eq=False)
class ReducedRows:
    """A few rows that stand for ``count``: made by the functions of this module.

    Parameters
    ----------
    rows : array of shape (n_rows, d)
        Scaled so that :attr:`second_moment` is unbiased.
    count : int
        Number of rows they stand for.
    """

    rows: NDArray[np.float64]
    count: int

    @property
    def size(self) -> int:
        """How many numbers the rows hold."""
        return self.rows.size

    @property
    def second_moment(self) -> NDArray[np.float64]:
        """Estimate of E[xxᵀ], not centred, shape (d, d), positive semi-definite."""
        moment: NDArray[np.float64] = self.rows.T @ self.rows / self.count
        return moment


def sample_rows(rows: Any, n_rows: int, *, seed: int = 0) -> ReducedRows:
    r"""Rows drawn uniformly without replacement, in one pass.

    Scaled by :math:`\sqrt{N / n}`; all N rows, as they are, if there are no more than
    ``n_rows``.

    Parameters
    ----------
    rows : rows
        Anything :func:`~sketchlearn.open_rows` takes.
    n_rows : int
        n, how many to keep: ``m // d`` for a budget of m numbers.
    seed : int
        Same seed and rows, same sample.

    Examples
    --------
    >>> sample_rows(np.ones((100, 3)), 4).second_moment[0].round(6)
    array([1., 1., 1.])
    """
    n, rng = require_positive_int("n_rows", n_rows), np.random.default_rng(seed)
    batches = open_rows(rows)
    kept, keys, count = np.empty((0, batches.n_features)), np.empty(0), 0
    for batch in batches:
        keys = np.concatenate([keys, rng.random(len(batch))])
        smallest = np.argsort(keys)[:n]
        kept = np.concatenate([kept, batch])[smallest]
        keys, count = keys[smallest], count + len(batch)
    return ReducedRows(kept * np.sqrt(count / len(kept)), count)


def project_rows(
    rows: Any,
    n_rows: int,
    *,
    law: ProjectionLaw = "gaussian",
    seed: int = 0,
    first_row: int = 0,
) -> ReducedRows:
    r"""Random combinations S X of the rows, in one pass.

    * ``"gaussian"``: S has independent :math:`\mathcal{N}(0, 1/n)` entries;
    * ``"sparse"``: they are :math:`\pm\sqrt{3/n}` with probability 1/6 each, else 0
      (Achlioptas, J. Comput. Syst. Sci. 66, 2003).

    Column i of S depends on ``seed`` and i only. Projections of parts whose
    ``first_row`` is their place in the whole add up to the projection of the whole.

    Parameters
    ----------
    rows : rows
        Anything :func:`~sketchlearn.open_rows` takes.
    n_rows : int
        n, how many combinations: ``m // d`` for a budget of m numbers.
    law : {"gaussian", "sparse"}
        Law of the entries of S.
    seed : int
        Same seed, same S.
    first_row : int
        Number of the first of these rows in the whole.

    Examples
    --------
    >>> whole = np.arange(6.0).reshape(3, 2)
    >>> a = project_rows(whole[:1], 2)
    >>> b = project_rows(whole[1:], 2, first_row=1)
    >>> np.allclose(a.rows + b.rows, project_rows(whole, 2).rows)
    True
    """
    n = require_positive_int("n_rows", n_rows)
    if law not in get_args(ProjectionLaw):
        raise FeatureMapError(
            f"law must be one of {', '.join(get_args(ProjectionLaw))}; got {law!r}."
        )
    batches = open_rows(rows)
    projected, number = np.zeros((n, batches.n_features)), first_row
    for batch in batches:
        projected += _columns(number, len(batch), n, law, seed).T @ batch
        number += len(batch)
    return ReducedRows(projected, number - first_row)


def _columns(
    first: int, count: int, n_rows: int, law: ProjectionLaw, seed: int
) -> NDArray[np.float64]:
    """Columns ``first`` to ``first + count - 1`` of S, as rows."""
    begin, end = first // _DRAWN_TOGETHER, -(-(first + count) // _DRAWN_TOGETHER)
    drawn = np.concatenate([_block(b, n_rows, law, seed) for b in range(begin, end)])
    start = first - begin * _DRAWN_TOGETHER
    return drawn[start : start + count]


def _block(
    block: int, n_rows: int, law: ProjectionLaw, seed: int
) -> NDArray[np.float64]:
    """Columns of S for one block of row numbers."""
    rng = np.random.default_rng([seed, block])
    if law == "gaussian":
        return rng.normal(scale=n_rows**-0.5, size=(_DRAWN_TOGETHER, n_rows))
    faces = np.array([-1.0, 1.0, 0.0, 0.0, 0.0, 0.0]) * (3 / n_rows) ** 0.5
    return np.asarray(faces[rng.integers(6, size=(_DRAWN_TOGETHER, n_rows))])
