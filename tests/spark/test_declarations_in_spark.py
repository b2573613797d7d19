"""What stands in front of a view's query, as Spark's own parser reads it."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from rollview.errors import UnsupportedError, ViewError
from rollview.sql.text.declaration import Declaration, declaration_of
from servers.spark import shared_session

pytestmark = pytest.mark.slow

VIEW = "CREATE MATERIALIZED VIEW v "
ACCEPTED = [
    "",
    "()",
    "(a INT)",
    "(a INT COMMENT 'x', `b c` STRUCT<x: INT, y STRING> COMMENT \"y\")",
    "(a DECIMAL(10, 2), b MAP<STRING, ARRAY<INT>>)",
    "USING delta",
    "(a INT) USING DELTA COMMENT 'c'",
    "COMMENT 'c' 'd'",
    "COMMENT 'it''s \\'so\\' \\n \\u0041 \\101 \\x \\% \\_ \\\\ \"\"'",
    "COMMENT \"a 'b' '' \"\" c\"",
    "COMMENT '\\uD83D\\uDE00 \\U0001F600'",
    "COMMENT r'a\\n'",
    "COMMENT R\"a\\n\" 'b'",
    "COMMENT ''",
    "COMMENT 'a\nb' -- AS\n",
    "/* COMMENT 'x' /* AS */ */ COMMENT 'c'",
    "TBLPROPERTIES ('k' = 'v', k2 = true, a.b = 3, c 'x', e = 1.5, 'f' == 'g', `q r`.s = FALSE)",
    "TBLPROPERTIES (k = 'a' 'b') COMMENT 'c' DEFAULT COLLATION UTF8_BINARY",
    "COMMENT 'c' TBLPROPERTIES ('k' = 'v')",
]
REFUSED = [
    "(a INT, )",
    "(a.b INT)",
    "(a INT, PRIMARY KEY (a))",
    "(a INT, CONSTRAINT c CHECK (a > 0))",
    "(CONSTRAINT c EXPECT (a > 0))",
    "USING delta USING delta",
    "COMMENT 'c' USING delta",
    "COMMENT 'c' COMMENT 'd'",
    "COMMENT NULL",
    "COMMENT c",
    "CLUSTER BY AUTO",
    "CLUSTERED BY (a) INTO 3 BUCKETS",
    "OPTIONS (a 'b')",
    "LOCATION '/x'",
    "STORED AS parquet",
    "ROW FORMAT DELIMITED",
    "WITH SCHEMA BINDING",
    "TBLPROPERTIES ()",
    "TBLPROPERTIES ('a')",
    "TBLPROPERTIES ('a' = 'b',)",
    "TBLPROPERTIES ('k' = 'v', 'k' = 'w')",
    "TBLPROPERTIES (k = -1)",
    "TBLPROPERTIES (k = x)",
    "TBLPROPERTIES (k = NULL)",
    "TBLPROPERTIES (k = 1 + 1)",
    "TBLPROPERTIES (k = DATE '2020-01-01')",
    "FOO",
]
NOT_HERE = [
    "(a INT NOT NULL)",
    "(a INT DEFAULT 3)",
    "(a INT GENERATED ALWAYS AS (1))",
    "(a VARCHAR(3))",
    "USING parquet",
    "PARTITIONED BY (a)",
    "PARTITIONED BY (bucket(3, a), years(b))",
    "CLUSTER BY (a)",
    "DEFAULT COLLATION UNICODE",
]
"""Known to Spark; refused here by name, because it would have no effect."""

OTHERS_ALSO = ["SCHEDULE EVERY 1 HOUR", "REFRESH POLICY AUTO", "(a)", "(a, b COMMENT 'x')"]
"""As Databricks writes them."""


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return shared_session()


def parsed(spark: SparkSession, sql: str) -> Any:
    """Spark's plan; None if it refuses the text."""
    try:
        return spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)
    except ParseException:
        return None


def read(sql: str) -> Declaration | None:
    try:
        return declaration_of(sql)
    except UnsupportedError:
        return None
    except ViewError as error:
        assert error.line is not None
        return None


@pytest.mark.parametrize("head", ACCEPTED)
def test_differential_what_both_accept_means_the_same(head: str, spark: SparkSession) -> None:
    sql = f"{VIEW}{head} AS SELECT 1 AS a"
    plan, found = parsed(spark, sql), read(sql)
    assert plan is not None and found is not None
    specification = plan.tableSpec()
    comment = specification.comment()
    assert found.comment == (comment.get() if comment.isDefined() else None)
    entries = specification.properties().iterator()
    properties = {}
    while entries.hasNext():
        entry = entries.next()
        properties[entry._1()] = entry._2()
    assert dict(found.properties) == properties
    columns = [plan.columns().apply(place) for place in range(plan.columns().size())]
    assert [each.name for each in found.columns] == [each.name() for each in columns]
    types = [spark.sql(f"SELECT CAST(NULL AS {each.kind}) x").dtypes[0][1] for each in found.columns]
    assert types == [each.dataType().catalogString() for each in columns]
    comments = [each.comment() for each in columns]
    assert [each.comment for each in found.columns] == [
        each.get() if each.isDefined() else None for each in comments
    ]
    assert sql[found.start :] == " SELECT 1 AS a"


@pytest.mark.parametrize("head", [*REFUSED, *NOT_HERE, *OTHERS_ALSO])
def test_differential_what_is_refused(head: str, spark: SparkSession) -> None:
    sql = f"{VIEW}{head} AS SELECT 1 AS a"
    assert (parsed(spark, sql) is not None) == (head in NOT_HERE)
    assert (read(sql) is not None) == (head in OTHERS_ALSO)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE MATERIALIZED VIEW IF NOT EXISTS c.s.v AS SELECT 1 AS a",
        "CREATE MATERIALIZED VIEW `a b` AS (SELECT 1 AS a)",
        "CREATE TEMPORARY VIEW v AS SELECT 1 AS a",
        "CREATE TEMP VIEW v (a COMMENT 'x') COMMENT 'y' AS SELECT 1 AS a",
        "CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1 AS a",
    ],
)
def test_differential_other_heads_that_both_accept(sql: str, spark: SparkSession) -> None:
    assert parsed(spark, sql) is not None and read(sql) is not None


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE MATERIALIZED VIEW IF EXISTS v AS SELECT 1 AS a",
        "CREATE MATERIALIZED VIEW v SELECT 1 AS a",
        "CREATE MATERIALIZED VIEW v",
        "CREATE TEMPORARY VIEW IF NOT EXISTS v AS SELECT 1 AS a",
        "CREATE OR REFRESH TEMPORARY VIEW v AS SELECT 1 AS a",
        "CREATE TEMPORARY VIEW s.v AS SELECT 1 AS a",
        "CREATE TEMPORARY VIEW v (a INT) AS SELECT 1 AS a",
        "CREATE TEMPORARY VIEW v TBLPROPERTIES ('a' = 'b') AS SELECT 1 AS a",
        "CREATE TEMPORARY VIEW v",
        "CREATE TEMPORARY MATERIALIZED VIEW v AS SELECT 1",
    ],
)
def test_differential_other_heads_that_both_refuse(sql: str, spark: SparkSession) -> None:
    assert parsed(spark, sql) is None and read(sql) is None
