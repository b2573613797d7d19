"""Reading that is spread over Spark: every task runs where an executor is."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from rollview.errors import RollviewError

Task = Callable[[], None]


class SparkWorkers:
    """Runs tasks as Spark tasks, one partition each. A trouble of rollview's own comes back as what it was."""

    def __init__(self, spark: Callable[[], SparkSession]) -> None:
        """`spark` is asked when there is something to do: a session may not have been started yet."""
        self._spark = spark

    def run(self, tasks: Sequence[Task]) -> None:
        """One job for all of them."""
        table = pa.table({"task": pa.array([pickle.dumps(task) for task in tasks], pa.binary())})
        frame = self._spark().createDataFrame(table).repartition(len(tasks))
        for (trouble,) in frame.mapInArrow(_run_all, "trouble binary").collect():
            if trouble is not None:
                raise pickle.loads(bytes(trouble))


def _run_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    troubles: list[bytes | None] = []
    for batch in batches:
        for task in batch.column(0).to_pylist():
            try:
                pickle.loads(task)()
                troubles.append(None)
            except RollviewError as trouble:
                troubles.append(pickle.dumps(trouble))
    yield pa.RecordBatch.from_arrays([pa.array(troubles, pa.binary())], names=["trouble"])
