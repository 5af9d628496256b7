"""Codes in training are those of the frozen network, step by step."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.decoders.autoencoders.test_linear import binary_rows, moments_of

from sketchlearn.decoders.autoencoders.code_network import CodeNetwork, CodeSpec
from sketchlearn.decoders.autoencoders.code_search import SearchSteps
from sketchlearn.decoders.autoencoders.directions import CodeDirections
from sketchlearn.meta.codes import TrainableCodes

ROWS = binary_rows(60, 25)
KNOWN = CodeDirections.of_moments(moments_of(ROWS), 4)


def randomized(seed=0):
    """A network whose every tensor matters."""
    start = CodeNetwork.initial(CodeSpec(width=8, n_steps=5), seed)
    rng = np.random.default_rng(seed)
    moved = {
        name: array + 0.1 * rng.normal(size=array.shape).astype(np.float32)
        for name, array in start.tensors.items()
    }
    return CodeNetwork(start.spec, moved)


@pytest.mark.parametrize("n_steps", [1, 3, 5])
def test_logits_of_a_step_are_the_same_in_numpy_and_torch(n_steps):
    frozen = randomized()
    with torch.no_grad():
        rows = torch.from_numpy(ROWS).float()
        expected = TrainableCodes.thaw(frozen)(KNOWN, rows)[n_steps - 1].numpy()
    coder = frozen.adapted(KNOWN)
    fields = [
        getattr(coder.steps, name)[:n_steps] for name in SearchSteps.__annotations__
    ]
    some = replace(coder, steps=SearchSteps(*fields))
    rows32 = ROWS.astype(np.float32)
    biases = some._biases(np.empty((len(ROWS), 0), np.float32))
    start = some._solve(((rows32 - KNOWN.mean) * some.gain).astype(np.float32))
    # The frozen search keeps the best code: with scores that always rise, the last.
    codes = _last_code(some, rows32, biases, start)
    assert np.allclose(some._logits(codes, biases), expected, atol=2e-3)


def _last_code(coder, rows, biases, codes):
    """The search in plain double precision, as its docstring has it."""
    W, inverse = coder.loadings, coder._inverse.astype(float)
    ones, momentum = coder.ones, 0.0
    signs = np.where(rows > 0.5, 0.5 / ones, -0.5 / (1 - ones))
    s = coder.steps
    for t, rate, beta, alpha in zip(
        s.temperature, s.rate, s.momentum, s.likelihood, strict=True
    ):
        q = 1 / (1 + np.exp(-(codes @ W.T + biases) / t))
        pull = alpha * np.abs(signs) * (rows - q)
        pull = pull + (1 - alpha) * signs * 4 * q * (1 - q)
        momentum = beta * momentum + pull @ inverse
        codes = codes + rate * t * momentum
    return codes


def test_the_frozen_search_keeps_the_best_of_all_codes_on_its_way():
    coder = randomized(1).adapted(KNOWN)
    rows = ROWS.astype(np.float32)
    biases = coder._biases(np.empty((len(rows), 0), np.float32))
    start = coder._solve(((rows - KNOWN.mean) * coder.gain).astype(np.float32))
    signs = np.where(rows > 0.5, 0.5 / coder.ones, -0.5 / (1 - coder.ones))
    scores = []
    for n in range(6):
        fields = [getattr(coder.steps, f)[:n] for f in SearchSteps.__annotations__]
        some = replace(coder, steps=SearchSteps(*fields))
        codes = _last_code(some, rows, biases, start)
        scores.append((signs * (codes @ coder.loadings.T + biases > 0)).sum(axis=1))
    found = (signs * coder.reconstruct(rows)).sum(axis=1)
    assert np.allclose(found, np.max(scores, axis=0), atol=np.abs(signs).max() * 1.01)
    assert np.mean(np.isclose(found, np.max(scores, axis=0), atol=1e-3)) > 0.9


def test_what_is_frozen_and_thawed_is_the_same():
    frozen = randomized(2)
    again = TrainableCodes.thaw(frozen).freeze()
    assert all(np.array_equal(again.tensors[n], a) for n, a in frozen.tensors.items())


def test_every_tensor_gets_a_gradient():
    model = TrainableCodes(randomized(3))
    last = model(KNOWN, torch.from_numpy(ROWS).float())[-1]
    last.sigmoid().sum().backward()
    for name, tensor in model.named_parameters():
        assert tensor.grad is not None, name
        assert torch.isfinite(tensor.grad).all(), name
