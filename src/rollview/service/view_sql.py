"""A view's own text, run by Spark over given relations: what the view is by definition.

It shares nothing with rollview's algebra but the parser, so that it can judge what the algebra made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count

import sqlglot
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

_numbers = count(1)


@contextmanager
def view_sql(spark: SparkSession, sql: str, relations: Mapping[str, DataFrame]) -> Iterator[DataFrame]:
    """The view's query as a frame; `relations` gives the frame for each name after FROM, in lower case.

    The frame is good inside the block only, because its temporary views are dropped at the end.
    """
    statement = sqlglot.parse_one(sql, dialect="spark")
    query = statement.expression if isinstance(statement, exp.Create) else statement
    names: dict[str, str] = {}
    by_name = {name.lower(): frame for name, frame in relations.items()}
    try:
        for table in list(query.find_all(exp.Table)):
            name = f"{table.db}.{table.name}" if table.db else table.name
            if name.lower() not in names:
                names[name.lower()] = f"_rollview_relation_{next(_numbers)}"
                by_name[name.lower()].createOrReplaceTempView(names[name.lower()])
            alias = table.alias or table.name
            known_as = exp.TableAlias(this=exp.to_identifier(alias))
            table.replace(exp.Table(this=exp.to_identifier(names[name.lower()]), alias=known_as))
        for column in query.find_all(exp.Column):
            # `source.table.column` is written `table.column` now that the table has lost its source.
            column.set("db", None)
        yield spark.sql(query.sql(dialect="spark"))
    finally:
        for name in names.values():
            spark.catalog.dropTempView(name)
