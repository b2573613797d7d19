"""Rows that are brought here: all of them in their order, or none where they are too many or too large."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from rollview.errors import AnswerRefused
from rollview.spark.session import collected
from servers.spark import shared_session

pytestmark = pytest.mark.slow
MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """The session of these tests."""
    return shared_session()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, 'x' AS t FROM range(1000) ORDER BY id DESC",
        "SELECT id AS a, id + 1 AS a FROM range(10)",
        "SELECT NULL AS a, array(id, 2) AS b, map('k', id) AS c, struct(id, 'x') AS d FROM range(3)",
        "SELECT CAST(NULL AS STRING) AS a, X'00ff' AS b, DATE '2020-01-01' AS c, INTERVAL '1' DAY AS d",
        "SELECT 1 AS one",
        "SELECT id FROM range(0)",
    ],
)
def test_what_fits_is_what_spark_gives(spark: SparkSession, sql: str) -> None:
    frame = spark.sql(sql)
    assert collected(frame, 1000, MEGABYTE).equals(frame.toArrow())


def test_so_many_rows_and_no_more(spark: SparkSession) -> None:
    assert collected(spark.range(0, 500, 1, 3), 500, MEGABYTE).num_rows == 500
    for partitions in (1, 3, 7):
        with pytest.raises(AnswerRefused, match="more than 500 rows") as refused:
            collected(spark.range(0, 501, 1, partitions), 500, MEGABYTE)
        assert "answers" in refused.value.hint


def test_so_many_bytes_and_no_more(spark: SparkSession) -> None:
    """A few wide rows behind many narrow ones are measured before they are refused."""
    late = "SELECT CASE WHEN id < 5000 THEN 'a' ELSE repeat('b', 20000) END AS t FROM range(0, 5010, 1, 1)"
    assert collected(spark.sql(late), 10_000, MEGABYTE).num_rows == 5010
    for sql in (late.replace("5010", "5060"), "SELECT repeat('x', 2000000) AS t"):
        with pytest.raises(AnswerRefused, match="more than 1 MB"):
            collected(spark.sql(sql), 10_000, MEGABYTE)


def test_an_answer_of_terabytes_ends_nothing(spark: SparkSession) -> None:
    """Spark would be out of memory long before it had brought a part of it."""
    sql = "SELECT repeat('x', 1000000) AS t, sequence(1, 100000) AS s FROM range(1000000)"
    with pytest.raises(AnswerRefused):
        collected(spark.sql(sql), 1_000_000, 256 * MEGABYTE)
    assert spark.range(3).count() == 3


def test_another_error_stays_what_it_is(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        collected(spark.sql("SELECT 1 / (id - 3) AS x FROM range(10)"), 1000, MEGABYTE)
