"""SQL that names relations as views do, run by Spark over given frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

from rollview.sql.splice import query_with

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_numbers = count(1)


@contextmanager
def answered(spark: SparkSession, sql: str, relations: Mapping[str, DataFrame]) -> Iterator[DataFrame]:
    """The query as a frame; `relations` gives the frame for each name after FROM, in any case.

    Its temporary views are dropped at the end of the block.
    """
    names: dict[str, str] = {}
    by_name = {name.lower(): frame for name, frame in relations.items()}

    def name_of(relation: str) -> str:
        if relation.lower() not in names:
            names[relation.lower()] = f"_rollview_relation_{next(_numbers)}"
            by_name[relation.lower()].createOrReplaceTempView(names[relation.lower()])
        return names[relation.lower()]

    try:
        yield spark.sql(query_with(sql, name_of))
    finally:
        for name in names.values():
            spark.catalog.dropTempView(name)
