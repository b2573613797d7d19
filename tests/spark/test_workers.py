"""Tasks on Spark: each is done once, in processes of Spark's, and a trouble comes back as what it was."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rollview.errors import ViewError
from rollview.planning import parse_view
from rollview.sources.workers import Threads, Workers
from rollview.spark.workers import SparkWorkers
from servers.spark import shared_session


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return shared_session()


@pytest.fixture(params=["threads", pytest.param("spark", marks=pytest.mark.slow)])
def workers(request: pytest.FixtureRequest) -> Workers:
    if request.param == "threads":
        return Threads()
    session: SparkSession = request.getfixturevalue("spark")
    return SparkWorkers(lambda: session)


def test_every_task_gives_back_what_it_found(workers: Workers, tmp_path: Path) -> None:
    files = [tmp_path / str(number) for number in range(7)]
    for file in files:
        file.write_bytes(file.name.encode() * 3)
    found = workers.run([partial(Path.read_bytes, file) for file in files])
    assert found == [str(number).encode() * 3 for number in range(7)]


def test_a_trouble_comes_back(workers: Workers) -> None:
    tasks = [partial(bytes, 3), partial(parse_view, "SELECT a FROM s.nothing", [], "v")]
    with pytest.raises(ViewError, match="nothing"):
        workers.run(tasks)


@pytest.mark.slow
def test_spark_does_it_elsewhere(spark: SparkSession) -> None:
    task = partial(eval, "str(__import__('os').getpid()).encode()")
    assert SparkWorkers(lambda: spark).run([task]) != [str(os.getpid()).encode()]
