"""Attacks on items: ids made to be taken for others, and traces of what was forgotten.

* twins: texts made to have the key of a given text, by inverting the sum of hashes
  that older sketches are made of. A break: a twin that new keys do not tell from its
  original, or that a declared vocabulary takes for it;
* integers chosen with the public seed to fall into all buckets of a given one. A break:
  one of them that still does so under a secret key;
* histories of adding, merging and forgetting ids. A break: counts that differ in a bit
  from those of the rows that remain;
* the same objects in a list and one by one. A break: two meanings.

usage: python3 dev.py run benchmarks/attacks/items.py [--twins 20000]
"""

import argparse
import warnings
from functools import partial

import numpy as np
from tally import run

import sketchlearn as sl
from sketchlearn.arithmetic.draws import GOLDEN, hash_keys
from sketchlearn.errors import RowsError
from sketchlearn.rows.ids import keys_of
from sketchlearn.rows.keys import SUMS

WIDTH, DEPTH = 64, 3


def unmixed(words):
    """Undo the mixing function of splitmix64."""
    words = words ^ words >> np.uint64(31) ^ words >> np.uint64(62)
    words = words * np.uint64(pow(0x94D049BB133111EB, -1, 2**64))
    words = words ^ words >> np.uint64(27) ^ words >> np.uint64(54)
    words = words * np.uint64(pow(0xBF58476D1CE4E5B9, -1, 2**64))
    return words ^ words >> np.uint64(30) ^ words >> np.uint64(60)


def twins_of(names, rng):
    """Other texts of 16 bytes with the same older keys."""
    step, first = np.uint64(GOLDEN), rng.integers(0, 2**64, len(names), np.uint64)
    hashes = hash_keys(names[:, 0], 0) + hash_keys(names[:, 1] + step, 0)
    second = unmixed(hashes - hash_keys(first, 0)) - step - step
    return np.stack([first, second], axis=1)


def as_texts(words):
    return [row.astype("<u8").tobytes() for row in words]


def twins(count):
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**64, (count, 2), np.uint64)
    names, made = as_texts(words), as_texts(twins_of(words, rng))
    assert (keys_of(names, SUMS) == keys_of(made, SUMS)).all()
    breaks = int((keys_of(names) == keys_of(made)).sum())
    vocabulary = sl.Vocabulary(names)
    for text in made[: count // 20]:
        try:
            vocabulary.positions_of([text])
        except RowsError:
            continue
        breaks += 1
    return count + count // 20, breaks


def chosen_integers(n_victims):
    sizes = {"width": WIDTH, "depth": DEPTH}
    known = sl.CountSketchFeatures(**sizes)
    secret = sl.CountSketchFeatures(2**24, **sizes, key=bytes(range(32)))
    ids, trials, breaks = np.arange(2**22, dtype=np.uint64), 0, 0
    public = known.columns_of(ids).indices.reshape(-1, DEPTH)
    for victim in range(n_victims):
        chosen = np.flatnonzero((public == public[victim]).all(axis=1))
        chosen = chosen[chosen != victim]
        hidden = secret.columns_of(np.append(chosen, victim).astype(np.uint64))
        places = hidden.indices.reshape(-1, DEPTH)
        trials += len(chosen)
        breaks += int((places[:-1] == places[-1]).all(axis=1).sum())
    return trials, breaks


def histories(count):
    rng, breaks = np.random.default_rng(0), 0
    for number in range(count):
        ids = rng.zipf(1.3, 600) % 80
        decoder = ("joint", "count-min", "count-sketch")[number % 3]
        make = partial(sl.FrequencyEstimator, 80, sketch_size=60, decoder=decoder)
        kept, *gone = np.split(ids, np.sort(rng.integers(1, 600, 3)))
        one = make().fit(kept)
        for part in gone:
            one = make().fit(part).merge(one) if len(part) else one
        for part in gone:
            one = one.forget(part) if len(part) else one
        breaks += not np.array_equal(one.counts_, make().fit(kept).counts_)
    return count, breaks


def meaning(data):
    """Rows as sorted lists of keys and counts; None if they are refused."""
    try:
        blocks = [rows.matrix() for rows in sl.open_items(data)]
    except RowsError:
        return None
    found = []
    for keys, rows in blocks:
        parts = np.split(np.arange(rows.nnz), rows.indptr[1:-1])
        pairs = list(zip(keys[rows.indices].tolist(), rows.data.tolist(), strict=True))
        found += [sorted(pairs[i] for i in part) for part in parts]
    return sorted(found)


def same_objects(count):
    rng, breaks = np.random.default_rng(0), 0
    kinds = [list, tuple, set, frozenset, np.array, str, len, iter]
    for _ in range(count):
        rows = [rng.integers(0, 9, rng.integers(0, 5)).tolist() for _ in range(4)]
        kind = kinds[rng.integers(len(kinds))]
        one_by_one = meaning(kind(row) for row in rows)
        listed = meaning([kind(row) for row in rows])
        breaks += None not in (listed, one_by_one) and listed != one_by_one
    return count, breaks


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--twins", type=int, default=20_000)
    size = parser.parse_args().twins
    warnings.simplefilter("ignore")

    def twins_of_texts():
        return twins(size)

    def integers_chosen_to_collide():
        return chosen_integers(max(size // 300, 1))

    def histories_of_ids():
        return histories(max(size // 100, 1))

    def objects_listed_and_one_by_one():
        return same_objects(max(size // 10, 1))

    run(
        twins_of_texts,
        integers_chosen_to_collide,
        histories_of_ids,
        objects_listed_and_one_by_one,
    )


if __name__ == "__main__":
    main()
