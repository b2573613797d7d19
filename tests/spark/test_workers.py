"""Tasks on Spark: each is done once, in processes of Spark's, and a trouble comes back as what it was."""

from __future__ import annotations

import os
from functools import partial
from operator import mul

import pytest
from pyspark.sql import SparkSession

from rollview.errors import ViewError
from rollview.planning import parse_view
from rollview.sources.settings import Threads, Workers
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


def test_every_task_gives_back_what_it_made_of_what_they_share(workers: Workers) -> None:
    tasks = [partial(mul, str(number).encode()) for number in range(7)]
    assert workers.run(tasks, 3) == [str(number).encode() * 3 for number in range(7)]


def test_a_trouble_comes_back(workers: Workers) -> None:
    tasks = [str.encode, partial(parse_view, "SELECT a FROM s.nothing", [])]
    with pytest.raises(ViewError, match="nothing"):
        workers.run(tasks, "v")


@pytest.mark.slow
def test_spark_does_it_elsewhere(spark: SparkSession) -> None:
    task = partial(eval, "str(__import__('os').getpid()).encode()")
    assert SparkWorkers(lambda: spark).run([task], {}) != [str(os.getpid()).encode()]
