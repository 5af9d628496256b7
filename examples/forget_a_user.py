"""A service forgets one user, exactly, without keeping anybody's rows.

Every user is sketched as data arrives; the service keeps one small vector per user
and their sum. Forgetting a user is a subtraction, and the digest proves that nothing
of them is left in the model.
"""

import numpy as np

import sketchlearn as sl

rng = np.random.default_rng(0)
users = {
    name: rng.normal(size=(n, 6)) for name, n in [("ann", 40), ("bo", 900), ("cy", 60)]
}

model = sl.CompressivePCA(n_components=2, bounds=(-8.0, 8.0))
phi = model.plan(n_features=6)

sketches = {name: sl.sketch_rows(rows, phi) for name, rows in users.items()}
total = sketches["ann"] + sketches["bo"] + sketches["cy"]
print("all users      ", total)

without_bo = total - sketches["bo"]
never_had_bo = sl.sketch_rows(np.concatenate([users["ann"], users["cy"]]), phi)
print("without bo     ", without_bo)
assert without_bo == never_had_bo

model.fit_sketch(without_bo)
print("components now\n", model.components_.round(2))
