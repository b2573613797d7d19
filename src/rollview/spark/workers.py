"""Reading that is spread over Spark: every task runs where an executor is.

Executors of a cluster have neither this package nor this machine's disk. The package is sent along, as one
file of code; they need a Python with what a task imports, and the lake under the path that it has here.
"""

from __future__ import annotations

import pickle
import re
import zipfile
from atexit import register
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from rollview.errors import InputError, RollviewError
from rollview.spark.data_errors import message_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Shared = TypeVar("Shared")
_Batches = Iterator[pa.RecordBatch]
_SCHEMA = "number int, given binary, failure binary"
_PROBE = "probe.parquet"
_PROBES = 4
_OF_PYTHON = re.compile(r'^(?:[a-z_]+\.)*[A-Z]\w*Error: .+$|Cannot run program "[^"]+"', re.MULTILINE)


def is_on_this_machine(master: str | None) -> bool:
    """Whether executors are threads of Spark's own process."""
    return master is None or master == "local" or master.startswith("local[")


class SparkWorkers:
    """Runs tasks as Spark tasks, one partition each. An error of rollview's own is raised as it was."""

    def __init__(self, spark: Callable[[], SparkSession]) -> None:
        """`spark` is asked when there is something to do: a session may not have been started yet."""
        self._spark = spark

    def run(self, tasks: Sequence[Callable[[Shared], bytes]], shared: Shared) -> list[bytes]:
        """One job for all of them.

        Tasks are rows, which Spark may write to its disks. What they share is a part of the code that runs
        over the rows: it is sent to executors over Spark's connections, and is in no plan, event or page.
        """
        spark = self._spark()
        send_code(spark)
        pickled = pa.array([pickle.dumps(task) for task in tasks], pa.binary())
        table = pa.table({"number": pa.array(range(len(tasks)), pa.int32()), "task": pickled})
        frame = spark.createDataFrame(table).repartitionById(len(tasks), "number")
        given: dict[int, bytes] = {}
        for number, result, failure in frame.mapInArrow(_runner(shared), _SCHEMA).collect():
            if failure is not None:
                raise pickle.loads(bytes(failure))
            given[number] = bytes(result)
        return [given[number] for number in range(len(tasks))]


def _runner(shared: object) -> Callable[[_Batches], _Batches]:
    pickled = pickle.dumps(shared)

    def run_all(batches: _Batches) -> _Batches:
        for batch in batches:
            for number, task in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                given, failure = None, None
                try:
                    given = pickle.loads(task)(pickle.loads(pickled))
                except RollviewError as error:
                    failure = pickle.dumps(error)
                outcome = (pa.array([each], pa.binary()) for each in (given, failure))
                arrays = [pa.array([number], pa.int32()), *outcome]
                yield pa.RecordBatch.from_arrays(arrays, names=["number", "given", "failure"])

    return run_all


def send_code(spark: SparkSession) -> None:
    """Sends this package to executors that are elsewhere, unless they have it from before."""
    if not is_on_this_machine(spark.conf.get("spark.master", None)):
        spark.addArtifacts(str(_code()), pyfile=True)


@cache
def _code() -> Path:
    """The modules of this package in one file, whose name says what is in it; it lasts as long as we do.

    An executor that joins later fetches it then.
    """
    package = Path(__file__).parents[1]
    modules = {each.relative_to(package.parent): each.read_bytes() for each in sorted(package.rglob("*.py"))}
    digest = sha256(b"".join(modules.values())).hexdigest()[:16]
    folder = Path(mkdtemp(prefix="rollview-code-"))
    register(rmtree, folder, ignore_errors=True)
    file = folder / f"rollview-{digest}.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in modules.items():
            archive.writestr(zipfile.ZipInfo(str(name)), content, zipfile.ZIP_DEFLATED)
    return file


def check_executors(spark: SparkSession, folder: Path, modules: Sequence[str]) -> None:
    """Refuses executors that do not see a folder of the lake as we do, or cannot import these modules."""
    if is_on_this_machine(spark.conf.get("spark.master", None)):
        return
    pq.write_table(pa.table({"number": pa.array(range(_PROBES), pa.int64())}), folder / _PROBE)
    seen = spark.read.schema("number bigint").parquet(f"file://{folder / _PROBE}")
    written = folder / "written"
    hint = (
        f"every machine of the cluster must have {folder.parents[1]} under this path, and its executors must "
        "run as the user that rollview runs as"
    )
    _try(
        lambda: seen.repartitionById(_PROBES, seen.number.cast("int")).write.parquet(f"file://{written}"),
        "Spark's executors cannot read and write the lake",
        hint,
    )
    if sum(pq.read_metadata(each).num_rows for each in written.glob("part-*.parquet")) != _PROBES:
        raise InputError(
            "Spark's executors have another folder at the path of the lake", subject="lake", hint=hint
        )
    if modules:
        send_code(spark)
        _try(
            lambda: _imported(spark, modules).collect(),
            "Spark's executors cannot import what reading the sources needs",
            "give them a Python of this version with the packages of the how-to page on clusters, by "
            "`spark.pyspark.python` or `spark.archives` in the project file",
        )


def _imported(spark: SparkSession, modules: Sequence[str]) -> DataFrame:
    def import_all(batches: _Batches) -> _Batches:
        for module in modules:
            import_module(module)
        yield from batches

    return spark.range(0, _PROBES, 1, _PROBES).mapInArrow(import_all, "id bigint")


def _try(action: Callable[[], object], what: str, hint: str) -> None:
    try:
        action()
    except Exception as error:
        found = _OF_PYTHON.findall(str(error))
        raise InputError(
            f"{what}: {found[-1] if found else message_of(error)}", subject="spark", hint=hint
        ) from error
