"""Reading that is spread over Spark: every task runs where an executor is."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from rollview.errors import RollviewError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Task = Callable[[], bytes]
_SCHEMA = "number int, given binary, trouble binary"


class SparkWorkers:
    """Runs tasks as Spark tasks, one partition each. A trouble of rollview's own comes back as it was."""

    def __init__(self, spark: Callable[[], SparkSession]) -> None:
        """`spark` is asked when there is something to do: a session may not have been started yet."""
        self._spark = spark

    def run(self, tasks: Sequence[Task]) -> list[bytes]:
        """One job for all of them."""
        pickled = pa.array([pickle.dumps(task) for task in tasks], pa.binary())
        table = pa.table({"number": pa.array(range(len(tasks)), pa.int32()), "task": pickled})
        frame = self._spark().createDataFrame(table).repartition(len(tasks), "number")
        given: dict[int, bytes] = {}
        for number, result, trouble in frame.mapInArrow(_run_all, _SCHEMA).collect():
            if trouble is not None:
                raise pickle.loads(bytes(trouble))
            given[number] = bytes(result)
        return [given[number] for number in range(len(tasks))]


def _run_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number, task in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            given, trouble = None, None
            try:
                given = pickle.loads(task)()
            except RollviewError as error:
                trouble = pickle.dumps(error)
            told = (pa.array([each], pa.binary()) for each in (given, trouble))
            arrays = [pa.array([number], pa.int32()), *told]
            yield pa.RecordBatch.from_arrays(arrays, names=["number", "given", "trouble"])
