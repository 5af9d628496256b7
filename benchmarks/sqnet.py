"""What the paper's SQNet for PCA gains from how its closed form is set up.

Networks are fitted to two thirds of the training sets and judged on the real ones of
the rest, three times; the test split is never read. Printed is the mean LRE of wide
sets (the mean of genotypes and images) and of narrow tables, by sketch size:

* weights: a power of the inverse norm of an episode, 0 to 5 (the setting is 4, and 1
  for the mean and the first two directions);
* order: features in the order of their dataset, or shuffled in training and judging;
* tanh: the paper's last activation behind the same networks;
* tuned: 120 steps of Adam with the paper's L1 loss from there, without and with tanh.

usage: python3 dev.py run benchmarks/sqnet.py [--data ../shared] [--episodes 1800]
"""

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from sketchlearn.decoders.moments.covariance.dense import symmetric_matrix
from sketchlearn.meta.backend import torch
from sketchlearn.meta.correlation_matrices import dataset_correlations
from sketchlearn.meta.datasets import load_folder
from sketchlearn.meta.moment_basis import fit_basis
from sketchlearn.meta.tasks import second_moment
from sketchlearn.meta.tasks.second_moment import PaddedMomentProblem
from sketchlearn.metrics import leading_components, pca_log_relative_error

D = 196
SIZES = (2, 20, 100, 500)
TUNED_SIZES = (20, 100)
SHARES = {"image": 0.44, "genotype": 0.20, "tabular": 0.27, "simulated": 0.09}
PLACES = np.tril_indices(D)


def thirds(datasets):
    """Three parts with the same kinds."""
    groups, parts = defaultdict(list), ([], [], [])
    for data in datasets:
        groups[data.kind, data.real, data.n_features > D].append(data)
    for group in groups.values():
        order = np.random.default_rng(7).permutation(len(group))
        for place, index in enumerate(order):
            parts[place % 3].append(group[index])
    return parts


def cases(datasets, shuffled):
    """Kind and correlations of random features of each real dataset."""
    found, rng = [], np.random.default_rng(5)
    for data in datasets:
        matrix = dataset_correlations(data, active_only=True).astype(np.float64)
        chosen = rng.permutation(len(matrix))[:D]
        chosen = chosen if shuffled else np.sort(chosen)
        kind = "narrow" if len(matrix) <= D else data.kind
        if data.real:
            found.append((kind, matrix[np.ix_(chosen, chosen)]))
    return found


def shuffle(triangles, rng):
    """The same matrices with their features in random order."""
    shuffled = np.empty_like(triangles)
    for row, matrix in zip(shuffled, symmetric_matrix(triangles), strict=True):
        d = np.count_nonzero(np.diag(matrix))
        order = np.concatenate([rng.permutation(d), np.arange(d, D)])
        row[:] = matrix[np.ix_(order, order)][PLACES]
    return shuffled


def judge(held_out, decode, sizes=SIZES):
    """LRE by kind and size; ``decode`` gives a triangle from a triangle and a size."""
    scores = defaultdict(list)
    for kind, matrix in held_out:
        d = len(matrix)
        triangle = np.pad(matrix, (0, D - d))[PLACES]
        for size in sizes:
            found = symmetric_matrix(decode(triangle, size))[:d, :d]
            lre = pca_log_relative_error(matrix, leading_components(found))
            scores[kind, size].append(lre)
    return scores


def projected(basis, head=lambda x: x):
    rows, mean = basis.rows.astype(np.float64), basis.mean.astype(np.float64)

    def decode(triangle, size):
        return head(mean + rows[:size].T @ (rows[:size] @ (triangle - mean)))

    return decode


def tuned(problem, basis, head, numpy_head):
    """Networks of each size after 120 steps with the paper's loss."""
    nets = {}
    for size in TUNED_SIZES:
        rows, mean = torch.tensor(basis.rows[:size]), torch.tensor(basis.mean)
        start = rows, rows.T.contiguous(), -rows @ mean, mean
        parts = [part.clone().requires_grad_() for part in start]
        steps = torch.optim.Adam(parts, lr=1e-4)
        for step in range(120):
            batch = problem.draw(np.random.default_rng([1, step]))
            into, back, shift, bias = parts
            found = head((batch @ into.T + shift) @ back.T + bias)
            steps.zero_grad()
            (found - batch).abs().mean().backward()
            steps.step()
        nets[size] = [part.detach().double().numpy() for part in parts]

    def decode(triangle, size):
        into, back, shift, bias = nets[size]
        return numpy_head(back @ (into @ triangle + shift) + bias)

    return decode


def fitted(triangles, power):
    norms = np.linalg.norm(triangles.astype(np.float64), axis=1)
    first = fit_basis(triangles, norms**-second_moment._FIRST_POWER, 2)
    return fit_basis(triangles, norms**-power, SIZES[-1], after=first)


def variants(problem, part, episodes):
    """Names and scores of all settings on one third."""
    triangles = problem.triangles(episodes, np.random.default_rng(1))
    in_order = cases(part, shuffled=False)
    for power in (0.0, 2.0, 3.0, 5.0):
        basis = fitted(triangles, power)
        yield f"weights: power {power:g}", judge(in_order, projected(basis))
    basis = fitted(triangles, second_moment._POWER)
    yield "the setting", judge(in_order, projected(basis))
    yield "tanh", judge(in_order, projected(basis, np.tanh))
    decode = tuned(problem, basis, lambda x: x, lambda x: x)
    yield "tuned", judge(in_order, decode, TUNED_SIZES)
    decode = tuned(problem, basis, torch.tanh, np.tanh)
    yield "tuned, tanh", judge(in_order, decode, TUNED_SIZES)
    mixed = shuffle(triangles, np.random.default_rng(2))
    basis = fitted(mixed, second_moment._POWER)
    yield "shuffled", judge(cases(part, shuffled=True), projected(basis))


def row_of(values):
    shown = ("-" if np.isnan(value) else f"{value:.3f}" for value in values)
    return " / ".join(shown)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared"))
    parser.add_argument("--episodes", type=int, default=1800)
    options = parser.parse_args()
    if not (options.data / "data").is_dir():
        raise SystemExit(f"no data in {options.data}; pass --data (skipped).")
    parts = thirds(load_folder(options.data / "data", split="train"))
    scores = defaultdict(lambda: defaultdict(list))
    for number, part in enumerate(parts):
        rest = [data for other in parts if other is not part for data in other]
        problem = PaddedMomentProblem(rest, part, episodes=32, shares=SHARES)
        for name, found in variants(problem, part, options.episodes):
            print(f"part {number + 1} of 3: {name}", flush=True)
            for key, values in found.items():
                scores[name][key] += values
    print(f"{'mean LRE at ' + '/'.join(map(str, SIZES)):40}wide | narrow")
    for name, found in scores.items():
        means = defaultdict(lambda: np.nan)
        means |= {key: np.mean(values) for key, values in found.items()}
        wide = [(means["genotype", m] + means["image", m]) / 2 for m in SIZES]
        narrow = [means["narrow", m] for m in SIZES]
        columns = (
            " ".join(f"{value:.3f}" for value in part) for part in (wide, narrow)
        )
        print(f"{name:28}{' | '.join(columns)}")


if __name__ == "__main__":
    main()
