"""Random queries as the views of one project on Spark, judged by DuckDB at every csn.

Some of the views read others. Queries that give very many rows are left out, as they would take the time that
many others need.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from pathlib import Path
from random import Random
from unittest.mock import patch

import duckdb
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from shop import SCHEMAS, Shop, check_every_csn, transact

from rollview.algebra import change_points
from rollview.project.project import Project

sys.path.insert(0, str(Path(__file__).parents[1] / "planning"))

from any_query import AnySparkQuery

BASES = (
    "SELECT cust_id AS k, cust_id % 3 AS x, state AS w FROM crm.customer",
    "SELECT cust_id AS k, amount AS x, CASE WHEN product_id > 2 THEN 'a' ELSE 'b' END AS w FROM shop.sales",
    "SELECT product_id AS k, parent_id AS x, kind AS w FROM shop.product",
)
MOST_ROWS = 400


class QueryWorld:
    """A shop whose views are random queries."""

    def __init__(self, folder: Path, spark: SparkSession, seed: int, views: int = 8) -> None:
        self.spark, self.seed = spark, seed
        self.random = Random(seed)
        self.shop = Shop(folder / "shop", {})
        self.shop.random = Random(seed)
        self.queries: Counter[str] = Counter()
        transact(self.shop, self.random.choice((0, 20)))
        for source, tables in SCHEMAS.items():
            for table, columns in tables.items():
                kinds = (
                    columns.replace(" PRIMARY KEY", "").replace("INTEGER", "BIGINT").replace("TEXT", "STRING")
                )
                spark.createDataFrame([], kinds).createOrReplaceTempView(f"{source}_{table}")
        self.shop.views = self._views(views)
        self.shop.write_project()

    def _views(self, number: int) -> dict[str, str]:
        bases, views = list(BASES), self.shop.views
        while len(views) < number:
            depth = self.random.randint(1, 3)
            name, sql = f"v{len(views)}", AnySparkQuery(self.random, bases).query(depth)
            views[name] = sql
            if not self._is_accepted(name, sql) or self._rows(name) > MOST_ROWS:
                del views[name]
            elif self.random.random() < 0.3:
                bases.append(f"SELECT k, x, w FROM {name}")
        return views

    def _is_accepted(self, name: str, sql: str) -> bool:
        """Whether it is a query to Spark, which allows fewer correlated ones than DuckDB."""
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        try:
            frame = self.spark.sql(sql.replace("crm.", "crm_").replace("shop.", "shop_"))
        except AnalysisException:
            return False
        frame.createOrReplaceTempView(name)
        return True

    def _rows(self, name: str) -> int:
        """How many rows a query gives over a full shop; very many if it takes too much to say."""
        full = {
            "crm": {"customer": tuple((n, "abc"[n % 3], "x") for n in range(1, 7))},
            "shop": {
                "sales": tuple((n, n % 6 + 1, n % 5 + 1, n % 10) for n in range(1, 26)),
                "product": tuple((n, "abc"[n % 3], n % 4 + 1) for n in range(1, 6)),
            },
        }
        try:
            return self.shop.answer(name, full).total()
        except duckdb.OutOfMemoryException:
            return MOST_ROWS + 1

    def round(self) -> str:
        """Setup, two runs of different length, and the judge."""
        # In every second world all keys count as hot.
        with patch.object(change_points, "FEW_PAIRS", change_points.FEW_PAIRS if self.seed % 2 else -1):
            self.shop.begin()
            with Project.open(self.shop.folder, self.spark) as project:
                project.setup()
                for steps in (3, 13):
                    transact(self.shop, steps)
                    project.run(once=True)
                check_every_csn(self.shop, project)
        self.queries["views"] += len(self.shop.views)
        self.queries["states"] += len(self.shop.views) * (1 + self.shop.commits())
        return f"{len(self.shop.views)} views at {self.shop.commits() + 1} csn"

    def close(self) -> None:
        self.shop.close()
