"""The prior of counts, fitted to what is seen of the items and of the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.counts.channel import Channel
from sketchlearn.decoders.counts.prior import SMALLEST_SHARE, CountLaws

__all__ = ["Energy", "FittedPrior", "refit_prior"]

Reals = NDArray[np.float64]

_FIRST_STEPS = 12
"""Steps of the first fit, which begins with all shapes alike."""

_FITTED_ITEMS = 2048
"""Items the prior is fitted to: as many more change no share noticeably."""


@final
@dataclass(frozen=True)
class Energy:
    r"""The mean square of the numbers of a sketch, and what it says of a law.

    In signed tables squares add up: a number has the variance
    :math:`s^2 = \sigma^2 + \lambda \operatorname{E} x^2`, of which the mean square E of
    m numbers is an estimate with a relative variance of
    :math:`2/m + (\operatorname{E} x^4 / (\operatorname{E} x^2)^2 - 1) / d = 2/\nu`,
    so that :math:`\nu E / s^2` is nearly chi-square.

    Parameters
    ----------
    square : float
        Mean square of the numbers, E.
    freedom : float
        How many numbers they are, m.
    load : float
        Squares of items in a number, :math:`\lambda`.
    noise_variance : float
        Of noise that was added, :math:`\sigma^2`.
    is_centred : bool
        Whether the mean count was taken out of the numbers: then x is the count
        without its mean.
    """

    square: float
    freedom: float
    load: float
    noise_variance: float
    is_centred: bool

    def log_likelihood(self, masses: Reals, counts: Reals, n_items: float) -> Reals:
        """Of each law, rows of ``masses``, whose bins have these counts."""
        total = masses.sum(axis=1)
        mean = masses @ counts / total if self.is_centred else np.zeros(len(masses))
        gaps = counts - mean[:, None]
        second = np.maximum((masses * gaps**2).sum(axis=1) / total, 1e-12)
        fourth = (masses * gaps**4).sum(axis=1) / total
        spread = np.maximum(fourth / second**2 - 1, 0.0)
        freedom = 2 / (2 / self.freedom + spread / n_items)
        expected = np.maximum(self.noise_variance + self.load * second, 1e-12)
        ratio = self.square / expected
        found: Reals = freedom / 2 * (np.log(ratio) - ratio + 1) + np.log(freedom) / 2
        return found


@final
@dataclass(frozen=True, eq=False)
class FittedPrior:
    """Shares of shapes and the law they make.

    Parameters
    ----------
    shares : array of shape (K,)
        Share of each shape.
    law : array of shape (B,)
        Probability of each bin.
    """

    shares: Reals
    law: Reals

    @classmethod
    def start(cls, laws: CountLaws, means: Sequence[float]) -> FittedPrior:
        """All shapes at all means alike."""
        masses = laws.at_means(means)
        shares = np.full(len(masses), 1 / len(masses))
        return cls(shares, shares @ masses)

    def refit(
        self,
        laws: CountLaws,
        means: Sequence[float],
        likelihood: Reals,
        items: Reals | None = None,
        energy: Energy | None = None,
    ) -> FittedPrior:
        r"""The prior that explains what was seen better.

        With :math:`Z_{jk}` the likelihood of item j under shape k,

        .. math::
            q_k \propto \prod_j Z_{jk}, \qquad
            n_k = \sum_j \frac{w_k Z_{jk}}{\sum_l w_l Z_{jl}}, \qquad
            w_k' = \frac{c\, q_k + n_k}{c + d}.

        Parameters
        ----------
        laws : CountLaws
            The dictionary.
        means : sequence of floats
            What the mean count may be; always as many.
        likelihood : array of shape (n, B)
            Likelihood of each bin for each of n items, or kinds of items.
        items : array of shape (n,), optional
            How many items each row of the likelihood stands for.
        energy : Energy, optional
            What the squares of the numbers say of the variance of counts.
        """
        masses = laws.at_means(means)
        items = np.ones(len(likelihood)) if items is None else items
        evidence = likelihood @ masses.T + 1e-300
        alone = items @ np.log(evidence) + laws.log_odds(len(means))
        if energy is not None:
            alone += energy.log_likelihood(masses, laws.middles, float(items.sum()))
        alone = np.exp(alone - alone.max())
        parts = evidence * self.shares
        mixed = (items / parts.sum(axis=1)) @ parts
        weighted = laws.trust * alone / alone.sum() + mixed
        shares = np.maximum(weighted / weighted.sum(), SMALLEST_SHARE)
        return FittedPrior(shares, shares @ masses)


def refit_prior(
    prior: FittedPrior | None,
    laws: CountLaws,
    channel: Channel,
    large: NDArray[np.bool_],
    energy: Energy | None,
    *,
    exact: bool,
) -> FittedPrior:
    """The prior that explains what is seen of the items now.

    The mean count is that of what is seen, of all items or without those that stand
    out: exactly if the sum of counts is known, and else one of three within a standard
    deviation.
    """
    n_items, items = len(channel.seen), None
    error = 0.0 if exact else float(np.sqrt(channel.variance.mean() / n_items))
    least, most = min(0.5 / n_items, 0.5), channel.grid.largest - 0.01
    offsets = (0.0,) if exact else (-error, 0.0, error)
    others = channel.seen[~large] if not large.all() else channel.seen
    middles = (float(channel.seen.mean()), float(others.mean()))
    means = [min(max(m + off, least), most) for m in middles for off in offsets]
    if n_items > _FITTED_ITEMS:
        channel, items = _representatives(channel)
    steps = 1 if prior is not None else _FIRST_STEPS
    prior = prior or FittedPrior.start(laws, means)
    for _ in range(steps):
        prior = prior.refit(laws, means, channel.likelihood, items, energy)
    return prior


def _representatives(channel: Channel) -> tuple[Channel, Reals]:
    """The largest items one by one, the others by evenly spaced ones."""
    order = np.argsort(channel.seen)
    n_top = _FITTED_ITEMS // 4
    bulk = np.linspace(0, len(order) - n_top, _FITTED_ITEMS - n_top + 1).astype(int)
    chosen = np.concatenate(
        [order[(bulk[:-1] + bulk[1:]) // 2], order[len(order) - n_top :]]
    )
    items = np.concatenate([np.diff(bulk), np.ones(n_top)]).astype(np.float64)
    return channel.take(chosen), items
