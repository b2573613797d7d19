"""A view's own text, run by Spark over given relations: what the view is by definition.

It shares nothing with rollview's algebra, and of its parser only the places of the relations' names, so that
it can judge what the algebra made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from rollview.errors import ViewError
from rollview.sql.splice import query_with

_numbers = count(1)


@contextmanager
def view_sql(spark: SparkSession, sql: str, relations: Mapping[str, DataFrame]) -> Iterator[DataFrame]:
    """The view's query as a frame; `relations` gives the frame for each name after FROM, in any case.

    The frame is good inside the block only, because its temporary views are dropped at the end.
    """
    names: dict[str, str] = {}
    by_name = {name.lower(): frame for name, frame in relations.items()}

    def name_of(relation: str) -> str:
        if relation.lower() not in names:
            names[relation.lower()] = f"_rollview_relation_{next(_numbers)}"
            by_name[relation.lower()].createOrReplaceTempView(names[relation.lower()])
        return names[relation.lower()]

    try:
        yield _analysed(spark, query_with(sql, name_of))
    finally:
        for name in names.values():
            spark.catalog.dropTempView(name)


def _analysed(spark: SparkSession, query: str) -> DataFrame:
    """The query, understood by Spark; what Spark does not accept is a mistake in the view."""
    try:
        return spark.sql(query)
    except (ParseException, AnalysisException) as error:
        raise ViewError(f"Spark does not accept it: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The first sentence of Spark's message, without its codes."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    if line.startswith("[") and "]" in line:
        line = line.split("]", 1)[1].strip()
    return line.split(" SQLSTATE")[0].rstrip(".")
