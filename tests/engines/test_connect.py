"""Spark Connect, where there are no RDDs, gives the bits of one machine, too."""

import os
import shutil
import subprocess
import sys

import pytest

SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
import numpy as np, pyarrow as pa, sketchlearn as sl
from pyspark.sql import SparkSession
from sketchlearn.errors import RowsError

local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
session = SparkSession.builder.remote("local[2]").config(map=local).getOrCreate()
rows = np.random.default_rng(0).normal(size=(3000, 3))
table = pa.table({name: rows[:, i] for i, name in enumerate("abc")})
frame = session.createDataFrame(table).repartition(5)
assert ".connect." in type(frame).__module__
phi = sl.FourierFeatures(3, 50)
found = sl.sketch_rows(frame, phi)
assert found == sl.sketch_rows(rows, phi)
assert len(found.lineage) == 1
bounds = (-9.0, 9.0)
fit = sl.CompressiveKMeans(2, sketch_size=200, bounds=bounds).fit
assert fit(frame).sketch_ == fit(rows).sketch_
bad = frame.selectExpr("a", "b", "case when c > 3 then null else c end c")
try:
    sl.sketch_rows(bad, phi)
except RowsError as error:
    assert "partition" in str(error), error
else:
    raise AssertionError("a missing value was taken")
print("as it should be")
"""


@pytest.mark.full
def test_spark_connect_gives_the_bits_of_one_machine(tmp_path):
    pytest.importorskip("pyspark", reason="needs sketchlearn[spark]")
    pytest.importorskip("grpc", reason="needs pyspark[connect]")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not installed")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "as it should be" in done.stdout, done.stderr[-3000:]
