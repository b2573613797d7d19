"""How every JVM of the tests starts: here, and in the processes that tests start.

What Spark compiles in a test runs a few times and is thrown away. The JVM's optimizing compiler takes half
of all processor time of such a run and never earns it back, so it is left out. For the same reason Spark
interprets its plans instead of generating code for each; the demo and the benchmarks let it generate code, as
users do. It takes memory a megabyte at a time: left alone it takes up to 64 for each of the many small tables
that it joins and groups, so that a tenth of its time went into collecting them. Of every plan it writes
a short text for a page that nobody opens; the long ones took some 4 % of its time. Spark's classes are
mapped from an archive, if there is one, instead of being read and verified at every start:

    python tests/servers/jvm.py

makes it in the environment's folder (`make test` does). A JVM that the archive does not fit ignores it.
Nothing else about Spark changes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

# With the one compiler alone the JVM sets little room aside for what it compiles. When that is full it stops
# compiling, and all that comes later is many times slower.
_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=400m -XX:+UseSerialGC -Xlog:disable"
_INTERPRETED = "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
_SMALL = "-Dspark.buffer.pageSize=1m -Dspark.sql.ui.explainMode=simple"
_ARCHIVE = Path(sys.prefix) / "spark.jsa"


def start_quickly() -> None:
    """Sets what Spark's launcher and Spark itself read when they start."""
    archive = f" -XX:SharedArchiveFile={_ARCHIVE}" if _ARCHIVE.exists() else ""
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _OPTIONS)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{_OPTIONS} {_INTERPRETED} {_SMALL}{archive}")


def make_archive() -> None:
    """Runs a little of everything in Spark; when the JVM ends, it writes down the classes it had loaded."""
    from pyspark import SparkContext
    from pyspark.sql import functions as f

    from rollview.spark.session import open_session

    unfinished = _ARCHIVE.with_suffix(".part")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{_OPTIONS} -XX:ArchiveClassesAtExit={unfinished}"
    session = open_session("archive", {"master": "local[2]"})
    rows = session.createDataFrame([(1, "a", 1.5)], "id bigint, name string, amount double")
    joined = session.range(10).join(rows, "id", "left").groupBy(f.col("id") % 3).agg(f.sum("amount"))
    joined.orderBy(f.col("sum(amount)").desc_nulls_last()).toPandas()
    gateway = SparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    unfinished.replace(_ARCHIVE)


if __name__ == "__main__":
    make_archive()
