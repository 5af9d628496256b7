"""Labelled rows are sketched class by class, whatever the batches they come in."""

import numpy as np
import pytest

from sketchlearn import MomentFeatures, sketch_rows
from sketchlearn.errors import RowsError
from sketchlearn.rows.open_rows import open_rows
from sketchlearn.sketching.labelled_rows import LabelledRows

ROWS = np.arange(20.0).reshape(10, 2)
CODES = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0])
NAMES = np.array(list("abc"))[CODES]
TABLE = np.column_stack([ROWS, CODES])
PHI = MomentFeatures(2)


@pytest.mark.parametrize("batch_rows", [1, 3, 100])
def test_every_class_has_the_sketch_of_its_rows(batch_rows):
    rows = LabelledRows(open_rows(ROWS, batch_rows=batch_rows), NAMES)
    assert rows.labels() == {"a", "b", "c"}
    found = rows.without("b").sketches(dict.fromkeys("abc", PHI))
    assert found == {"a": sketch_rows(ROWS[CODES == 0], PHI)} | {
        "c": sketch_rows(ROWS[CODES == 2], PHI)
    }


def test_without_names_the_numbers_are_the_classes():
    assert LabelledRows(open_rows(TABLE)).labels() == {0, 1, 2}
    with pytest.raises(RowsError, match="holds whole numbers"):
        LabelledRows(open_rows(TABLE + 0.5)).labels()


def test_extremes_are_those_of_the_features():
    apart = LabelledRows(open_rows(ROWS), NAMES).extremes()
    assert apart[:2].tolist() == [[0.0, 1.0], [18.0, 19.0]]
    assert LabelledRows(open_rows(TABLE)).extremes().tolist() == apart.tolist()
