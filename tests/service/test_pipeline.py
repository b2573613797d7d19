"""A Spark Declarative Pipeline as Spark has it, brought to a project: its files are the views."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from shop import Shop, shown, transact

from rollview.errors import InputError
from rollview.project.project import Project

pytestmark = pytest.mark.slow

SPEC = """name: pipeline
storage: file:///tmp/storage
catalog: spark_catalog
database: shop
libraries: [{glob: {include: transformations/**}}]
"""
FILES = {
    "sales.sql": """-- What is worth a look.
CREATE TEMPORARY VIEW large (sale_id COMMENT 'the key', cust_id, amount) COMMENT 'not stored'
AS SELECT sale_id, cust_id, amount FROM sales WHERE amount > 2; -- of the database

CREATE MATERIALIZED VIEW shop.by_state (state STRING COMMENT 'of America', n BIGINT, total BIGINT)
USING delta COMMENT 'large sales; by state' TBLPROPERTIES ('quality' = 'gold')
AS SELECT c.state, count(*) AS n, sum(large.amount) AS total
FROM large JOIN crm.customer c ON large.cust_id = c.cust_id GROUP BY c.state;
""",
    "deep/sizes.sql": """CREATE MATERIALIZED VIEW sizes AS
SELECT spark_catalog.shop.by_state.n, count(*) AS states FROM spark_catalog.shop.by_state GROUP BY n;
""",
}
MEANT = {
    "by_state": """SELECT c.state, count(*) AS n, sum(s.amount) AS total FROM shop.sales s
        JOIN crm.customer c ON s.cust_id = c.cust_id WHERE s.amount > 2 GROUP BY c.state""",
    "sizes": "SELECT n, count(*) AS states FROM by_state GROUP BY n",
}


def write(shop: Shop, files: dict[str, str]) -> None:
    """The project with the pipeline's files in place of views."""
    shop.views = dict(MEANT)
    shop.write_project(pipeline="spark-pipeline.yml")
    text = (shop.folder / "rollview.yml").read_text()
    (shop.folder / "rollview.yml").write_text(text.replace("name: shop\n", ""))
    (shop.folder / "spark-pipeline.yml").write_text(SPEC)
    for name, sql in files.items():
        path = shop.folder / "transformations" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(sql)


def test_oracle_a_pipeline_is_maintained(shop: Shop, spark: SparkSession) -> None:
    write(shop, FILES)
    transact(shop, 20)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        assert project.name == "pipeline"
        report = project.setup()
        assert list(report.loaded) == ["by_state", "sizes"]
        table = DeltaTable(str(shop.folder / "lake/views/by_state"))
        assert table.metadata().description == "large sales; by state"
        assert table.metadata().configuration["quality"] == "gold"
        transact(shop, 10)
        project.run(once=True)
        for name in MEANT:
            assert shown(project, name) == shop.expected_now(name)
        assert all(each.is_right for each in project.verify())
        # A temporary view that means the same changes nothing.
        (shop.folder / "transformations/sales.sql").write_text(
            FILES["sales.sql"].replace("amount > 2", "(amount > 2) /* much */")
        )
        assert project.setup().unchanged == ["by_state", "sizes"]
        (shop.folder / "transformations/sales.sql").write_text(FILES["sales.sql"].replace("> 2", "> 3"))
        assert [line for line in project.plan_setup().lines if "the definition changed" in line]
        # A view by itself is explained with the temporary views of the project.
        other = Path(shop.folder / "other.sql")
        other.write_text("CREATE MATERIALIZED VIEW other AS SELECT count(*) AS n FROM large")
        assert "shop.sales" in project.explain_sql(other).normal_form
        other.write_text(f"{other.read_text()}; {FILES['deep/sizes.sql']}")
        with pytest.raises(
            InputError, match="has to create one view that is stored, and these are: other, sizes"
        ):
            project.explain_sql(other)


def test_a_python_file_is_refused_and_not_run(shop: Shop, spark: SparkSession) -> None:
    write(shop, {**FILES, "more.py": "open('ran', 'w')"})
    with (
        Project.open(shop.folder, spark) as project,
        pytest.raises(InputError, match=r"spark-pipeline.yml: transformations/more.py is Python"),
    ):
        project.setup()
    assert not (shop.folder / "ran").exists() and not (shop.folder / "lake/views").exists()


def test_the_page_shows_a_project_that_works(shop: Shop, spark: SparkSession) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/pipelines.md").read_text(encoding="utf-8")
    for kind, name, text in re.findall(r"```(yaml|sql)\n(?:#|--) (\S+)\n(.*?)```", page, re.DOTALL):
        path = shop.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            re.sub(r"crm: .*", "crm: {type: sqlite, path: ./crm.db}", text) if kind == "yaml" else text
        )
    with Project.open(shop.folder, spark) as project:
        assert project.name == "sales"
        assert "view by_state: will be loaded (first load)" in list(project.plan_setup().lines)


_TABLES = """
import json, sys
from pyspark.sql import SparkSession

warehouse, tables = sys.argv[1], json.loads(sys.argv[2])
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.warehouse.dir", warehouse)
    .config("spark.sql.catalogImplementation", "hive")
    .getOrCreate()
)
for name, (columns, rows) in tables.items():
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {name.partition('.')[0]}")
    spark.createDataFrame([tuple(row) for row in rows], columns).write.saveAsTable(name)
"""


@pytest.mark.soak
def test_differential_spark_makes_the_same_tables_of_the_pipeline(shop: Shop, spark: SparkSession) -> None:
    """`spark-pipelines run` and rollview, given the same files and rows."""
    # Spark alone has no tables of Delta.
    files = {name: sql.replace("USING delta ", "") for name, sql in FILES.items()}
    write(shop, files)
    spec = shop.folder / "spark-pipeline.yml"
    spec.write_text(SPEC.replace("file:///tmp/storage", (shop.folder / "storage").as_uri()))
    transact(shop, 20)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        transact(shop, 10)
        project.run(once=True)
        ours = {name: shown(project, name) for name in MEANT}
    assert all(ours.values())
    crm, sales = (shop.connections[name] for name in ("crm", "shop"))
    tables = {
        "shop.sales": (
            "sale_id bigint, cust_id bigint, amount bigint",
            sales.execute("SELECT sale_id, cust_id, amount FROM sales").fetchall(),
        ),
        "crm.customer": (
            "cust_id bigint, state string",
            crm.execute("SELECT cust_id, state FROM customer").fetchall(),
        ),
    }
    warehouse = shop.folder / "warehouse"
    run = partial(subprocess.run, cwd=shop.folder, check=True, timeout=600)
    run([sys.executable, "-c", _TABLES, str(warehouse), json.dumps(tables)])
    command = [str(Path(sys.prefix, "bin/spark-pipelines")), "run", "--spec", str(spec)]
    for setting in (f"sql.warehouse.dir={warehouse}", "sql.catalogImplementation=hive"):
        command += ["--conf", f"spark.{setting}"]
    home = {"SPARK_HOME": str(Path(pyspark.__file__).parent), "PYSPARK_PYTHON": sys.executable}
    run(command, env=os.environ | home)
    for name in MEANT:
        theirs = pq.read_table(warehouse / "shop.db" / name)
        assert Counter(tuple(row.values()) for row in theirs.to_pylist()) == ours[name]
