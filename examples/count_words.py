"""Two shops count what is bought, in a sketch of 300 numbers each, and add them up.

Nobody keeps a list of sales. The sketches merge exactly; all items are decoded
together, with error bars; and one day of sales is taken back as if it had never been.
"""

import numpy as np

import sketchlearn as sl

rng = np.random.default_rng(0)
items = [f"article {j}" for j in range(1000)]
shares = 1 / np.arange(1, 1001) ** 1.1
shares /= shares.sum()
sales = [rng.choice(items, size=20_000, p=shares).tolist() for _ in range(2)]

counter = sl.FrequencyEstimator(items, sketch_size=300)
plan = counter.plan()  # the same for both shops
left, right = (sl.sketch_items(ids, plan) for ids in sales)
both = left + right
print(f"{both.count} sales in {both.packed_bytes} bytes")

counter.fit_sketch(both)
print(counter.top(5))

truth = np.array([sum(ids.count(item) for ids in sales) for item in items[:5]])
found = counter.query(items[:5])
print("true counts   ", truth)
assert (np.abs(found.counts - truth) < 0.1 * truth).all()

assert both - right == left
