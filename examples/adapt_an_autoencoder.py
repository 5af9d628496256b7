"""An autoencoder follows its data: yesterday's rows go, today's come, nobody trains.

Two clinics sketch questionnaires of zeros and ones. The sum of their sketches is an
encoder and a decoder; when one clinic leaves, so do its rows, to the bit, and the
autoencoder is that of the other. Rows unlike the others stand out.
"""

import numpy as np

import sketchlearn as sl

rng = np.random.default_rng(0)


def questionnaires(n, n_questions=60, n_causes=6, seed=0):
    """Answers with a few common causes, other ones for each clinic."""
    causes = np.random.default_rng(seed).normal(size=(n_causes, n_questions))
    latent = rng.normal(size=(n, n_causes)) @ causes + rng.normal(size=(n, n_questions))
    return (latent > 1.0).astype(np.uint8)


north, south = questionnaires(4000, seed=1), questionnaires(4000, seed=2)
other_north, other_south = questionnaires(500, seed=1), questionnaires(500, seed=2)

coder = sl.CompressiveAutoencoder(n_components=12)
plan = coder.plan(n_features=60)  # what both clinics agree on; no row was looked at
first, second = sl.sketch_rows(north, plan), sl.sketch_rows(south, plan)

for name, sketch in {"north": first, "both": first + second, "south": second}.items():
    coder.fit_sketch(sketch)
    scores = coder.score(other_north), coder.score(other_south)
    print(f"{name:6s} balanced accuracy: north {scores[0]:.3f}, south {scores[1]:.3f}")

assert (first + second) - first == second  # exactly: nothing of the north is left

coder.fit_sketch(second)
codes = coder.transform(other_south)
print("codes", codes.shape, "and back", coder.inverse_transform(codes).shape)

noise = rng.integers(0, 2, other_south.shape)
usual, odd = coder.score_samples(other_south), coder.score_samples(noise)
print(f"scores of usual rows {usual.mean():.3f}, of noise {odd.mean():.3f}")
assert usual.mean() > odd.mean()
