"""A view's own text, run by Spark over given relations: what the view is by definition.

It shares nothing with rollview's algebra, and of its parser only the places of the relations' names, so that
it can judge what the algebra made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from rollview.deferred_import import deferred
from rollview.errors import ViewError
from rollview.spark.answered import answered

if TYPE_CHECKING:
    from pyspark import errors as spark_errors
    from pyspark.sql import DataFrame, SparkSession
else:
    spark_errors = deferred("pyspark.errors")


@contextmanager
def view_sql(spark: SparkSession, sql: str, relations: Mapping[str, DataFrame]) -> Iterator[DataFrame]:
    """The view's query as a frame; `relations` gives the frame for each name after FROM, in any case.

    The frame is good inside the block only. What Spark does not accept is a mistake in the view.
    """
    with ExitStack() as stack:
        try:
            frame = stack.enter_context(answered(spark, sql, relations))
        except (spark_errors.ParseException, spark_errors.AnalysisException) as error:
            raise ViewError(f"Spark does not accept it: {_reason(error)}") from error
        yield frame


def _reason(error: Exception) -> str:
    """The first sentence of Spark's message, without its codes."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    if line.startswith("[") and "]" in line:
        line = line.split("]", 1)[1].strip()
    return line.split(" SQLSTATE")[0].rstrip(".")
