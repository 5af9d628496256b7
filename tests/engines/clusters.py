"""Local clusters of all engines, each with one way to spread a frame over it."""

import logging
import os
import shutil
import sys
from contextlib import contextmanager

import pyarrow as pa
import pytest

ENGINES = ("dask", "ray", "spark")


class DaskFrames:
    """Two processes of a local cluster."""

    name = "dask"

    def of(self, frames):
        """One dataset with a partition for each frame."""
        frame = pytest.importorskip("dask.dataframe")
        return frame.from_map(lambda i: frames[i], range(len(frames)), meta=frames[0])

    def dying(self, frames, marker, partition):
        """The same, whose worker dies the first time it has one of the partitions."""
        die = die_once(marker, partition)

        def read(i):
            die(i)
            return frames[i]

        frame = pytest.importorskip("dask.dataframe")
        return frame.from_map(read, range(len(frames)), meta=frames[0])


class RayFrames:
    name = "ray"

    def of(self, frames):
        data = pytest.importorskip("ray.data")
        return data.from_arrow([pa.table(frame) for frame in frames])

    def dying(self, frames, marker, partition):
        firsts = [frame.iloc[0, 0] for frame in frames]
        die = die_once(marker, partition)

        def read(table):
            die(firsts.index(table.column(0)[0].as_py()))
            return table

        return self.of(frames).map_batches(read, batch_format="pyarrow")


class SparkFrames:
    name = "spark"

    def __init__(self, session):
        self.session = session

    def of(self, frames, die=None):
        def read(batches):
            numbers = [i for batch in batches for i in batch.column(0).to_pylist()]
            for i in numbers:
                if die is not None:
                    die(i)
                yield from pa.table(frames[i]).to_batches(700)

        schema = self.session.createDataFrame(pa.table(frames[0])).schema
        numbers = self.session.range(0, len(frames), 1, len(frames))
        return numbers.mapInArrow(read, schema)

    def dying(self, frames, marker, partition):
        return self.of(frames, die_once(marker, partition))


def die_once(marker, partition):
    """A function that ends its process the first time it is called with a number."""

    def die(number):
        if number != partition or os.path.exists(marker):
            return
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        os._exit(1)

    return die


def pandas_frames(frame, cuts):
    """Frames of consecutive rows, some of them empty."""
    ends = [0, *cuts, len(frame)]
    pairs = zip(ends[:-1], ends[1:], strict=True)
    return [frame.iloc[i:j].reset_index(drop=True) for i, j in pairs]


@contextmanager
def started(name):
    """A running local cluster of two workers."""
    yield from {"dask": _dask, "ray": _ray, "spark": _spark}[name]()


def _dask():
    distributed = pytest.importorskip("distributed", reason="needs sketchlearn[dask]")
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster),
    ):
        yield DaskFrames()


def _ray():
    ray = pytest.importorskip("ray", reason="needs sketchlearn[ray]")
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        object_store_memory=200 * 2**20,
        _temp_dir=None,
    )
    data = pytest.importorskip("ray.data", reason="needs sketchlearn[ray]")
    data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel("CRITICAL")
    try:
        yield RayFrames()
    finally:
        ray.shutdown()


def _spark():
    sql = pytest.importorskip("pyspark.sql", reason="needs sketchlearn[spark]")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not installed")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "700",
    }
    builder = sql.SparkSession.builder.master("local[2,4]")  # each task four times
    session = builder.config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield SparkFrames(session)
    finally:
        session.stop()
