"""Three hospitals learn principal components together, privately.

Each hospital keeps its rows and its exact sketch. What leaves the house is one noisy
release, paid for in the hospital's own ledger. The releases are of different patients,
so merging them costs nobody anything more, and neither does decoding the result.
"""

import tempfile
from pathlib import Path

import numpy as np

import sketchlearn as sl

# Public, agreed before anybody looks at a patient: which measurements, in what range
# they are kept, and how long a row's feature vector may be.
NAMES = ["age", "systolic", "diastolic", "pulse", "glucose", "bmi"]
LOW = np.array([0.0, 60.0, 30.0, 30.0, 2.0, 10.0])
HIGH = np.array([110.0, 220.0, 130.0, 180.0, 20.0, 60.0])
NORM_BOUND = 2.0
EPSILON, DELTA = 1.0, 1e-7


def patients(n, seed):
    """Invented patients: health and age drive all the measurements."""
    rng = np.random.default_rng(seed)
    health, age = rng.normal(size=(2, n, 1))
    loads = np.array([[0, 14, 8, 9, 1.8, 4], [17, 11, 3, -4, 0.8, 1]])
    noise = rng.normal(size=(n, 6)) * [3, 6, 4, 7, 0.8, 2.5]
    rows = [52, 128, 79, 76, 6.2, 27] + health * loads[0] + age * loads[1] + noise
    return np.clip(rows, LOW, HIGH)  # a rule for each row alone, so it leaks nothing


model = sl.CompressivePCA(n_components=2, standardize=True, bounds=(LOW, HIGH))
plan = sl.clipped(model.plan(n_features=6), norm_bound=NORM_BOUND).with_columns(NAMES)

hospitals = {name: patients(20_000, seed) for seed, name in enumerate("ABC")}
with tempfile.TemporaryDirectory() as folder:
    releases = []
    for name, rows in hospitals.items():
        # Inside the hospital.
        ledger = sl.Ledger(
            Path(folder) / f"{name}.ledger", epsilon=2 * EPSILON, delta=DELTA
        )
        exact = sl.sketch_rows(rows, plan, progress=False)
        private = sl.release(exact, epsilon=EPSILON, delta=DELTA, ledger=ledger)
        sl.save(private, Path(folder) / f"{name}.sketch")
        print(f"hospital {name}: {private}")
        print(f"  spent so far: epsilon = {ledger.spent_epsilon(DELTA):.3f} of 2")
        # Outside: only the file.
        releases.append(sl.load(Path(folder) / f"{name}.sketch"))

together = sl.merge_disjoint(*releases)
print("together:  ", together)
for key, value in together.statement.describe().items():
    print(f"  {key:<16} {value}")

private = model.fit_sketch(together)
everybody = np.concatenate(list(hospitals.values()))
exact = sl.CompressivePCA(n_components=2, standardize=True).fit(everybody)

print("component 1 ", *(f"{name:>10}" for name in NAMES))
for who, pca in (("private", private), ("exact", exact)):
    print(f"{who:<12}", *(f"{value:>10.3f}" for value in pca.components_[0]))
likeness = abs(np.vecdot(private.components_, exact.components_))
print("likeness of the two components (1 is the same):", likeness.round(4))
assert likeness.min() > 0.95
