"""Three hospitals find groups of patients together, and show nobody their sketches.

Each hospital sends one share: its sketch under masks that cancel in the sum of all
three, with its part of the noise. Whoever adds up the shares sees one private sketch,
with less noise than three releases merged (examples/private_release.py) would have, and
nothing of any hospital alone. Needs the extra: pip install 'sketchlearn[secure]'.
"""

import tempfile
from pathlib import Path

import numpy as np

import sketchlearn as sl

# Public, agreed before anybody looks at a patient: measurements, their range, the map.
LOW, HIGH = np.array([0.0, 60.0, 30.0]), np.array([110.0, 220.0, 180.0])
GROUPS = np.array([[30.0, 110.0, 70.0], [50.0, 150.0, 95.0], [75.0, 135.0, 60.0]])
NORM_BOUND = 12.25  # nearly all rows have features this long, by the map alone
EPSILON, DELTA = 1.0, 1e-7


def patients(n, weights, seed):
    """Invented patients: age, blood pressure and pulse of three groups."""
    rng = np.random.default_rng(seed)
    rows = GROUPS[rng.choice(3, size=n, p=weights)] + rng.normal(size=(n, 3)) * 5
    return np.clip(rows, LOW, HIGH)  # a rule for each row alone, so it leaks nothing


def by_age(centers):
    """Centers in the order of their first feature."""
    return centers[centers[:, 0].argsort()]


model = sl.CompressiveKMeans(n_clusters=3, bounds=(LOW, HIGH), sketch_size=300)
phi = sl.clipped(model.plan(n_features=3), norm_bound=NORM_BOUND)
phi = phi.with_columns(["age", "pressure", "pulse"])

# No two hospitals see the same mix of patients.
hospitals = {
    "north": patients(20_000, [0.8, 0.1, 0.1], 0),
    "south": patients(15_000, [0.1, 0.8, 0.1], 1),
    "west": patients(25_000, [0.1, 0.1, 0.8], 2),
}

# Each makes a key and tells the others the public one, by a way they trust.
keys = {name: sl.PartyKey.generate() for name in hospitals}
# The noise of two is enough: each relies on one of the other two to be honest.
session = sl.Session.start(
    phi,
    {name: key.public for name, key in keys.items()},
    epsilon=EPSILON,
    delta=DELTA,
    n_honest=2,
)
print(session)

with tempfile.TemporaryDirectory() as folder:
    for name, rows in hospitals.items():
        # Inside the hospital.
        exact = sl.sketch_rows(rows, phi, progress=False)
        ledger = sl.Ledger(Path(folder) / f"{name}.ledger", epsilon=2.0, delta=DELTA)
        share = sl.contribute(
            exact, session, keys[name], ledger=ledger, honest_others=1
        )
        sl.save(share, Path(folder) / f"{name}.share")
        print(f"{name}: {share}, spent {ledger.spent_epsilon(DELTA):.3f} of 2")
    # Outside: only the files.
    private = sl.combine(sl.load(path) for path in Path(folder).glob("*.share"))
print("together:", private)

found = by_age(model.fit_sketch(private).cluster_centers_)
pooled = by_age(model.fit(np.concatenate(list(hospitals.values()))).cluster_centers_)
print("centers: private sum | all rows in one place")
for center, other in zip(found, pooled, strict=True):
    print("  ", center.round(1), "|", other.round(1))
distance = np.abs(found - pooled).max()
print(f"largest difference: {distance:.2f}")
assert distance < 5
