"""Views as external tables of a Spark catalog, and as the other programs of the page read them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from shop import Shop, transact

from pages.shell import DOCS
from rollview.cli.main import main
from rollview.errors import ComputationFailed, InputError
from rollview.project.project import Project
from rollview.upkeep.register import plan_registrations, register

_CONNECTOR = Path(sys.prefix, "delta-spark")

_CATALOG = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from rollview import Project
from rollview.errors import InputError

folder, jars = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars", jars)
    .config("spark.ui.enabled", "false")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
    .config("spark.databricks.delta.snapshotPartitions", "2")
    .getOrCreate()
)
spark.sql("CREATE DATABASE reports")
with Project.open(folder, spark) as project:
    try:
        project.register("nowhere")
    except InputError as error:
        assert "nowhere" in str(error)
    made = [project.register("reports"), project.register("reports")]
    shown = lambda: [list(row) for row in spark.table("reports.sales_by_state").collect()]
    before = shown()
    print("before", flush=True)
    sys.stdin.readline()
    project.run(once=True)
    csn = project.status().last_csn
print(json.dumps([[[each.is_new for each in some] for some in made], before, shown(), csn]))
"""


@pytest.mark.parametrize(
    "schema", ["", "a.b.c", "a b", "a;b", "`a`", "a.", "a'b", "ä", "a\n", "1a", "a.b; DROP TABLE t --"]
)
def test_what_names_no_schema_is_refused(schema: str) -> None:
    with pytest.raises(InputError, match="is not the name of a schema"):
        plan_registrations(schema, [("sold", "/lake/views/sold")])


@pytest.mark.parametrize(
    "folder", ["/it's", "/back\\slash'; DROP TABLE t; --", "/a b/ü", "s3://bucket/it's\\"]
)
def test_what_is_in_a_folder_ends_no_text(folder: str) -> None:
    (found,) = plan_registrations("main.reports", [("odd ` name", f"{folder}/views/odd")])
    assert re.fullmatch(
        r"CREATE TABLE IF NOT EXISTS `main`\.`reports`\.`odd `` name` USING delta LOCATION '(?:[^'\\]|\\.)*'",
        found.statement,
    ), found.statement


def test_a_lake_on_s3_is_named_as_spark_knows_it() -> None:
    (found,) = plan_registrations("reports", [("sold", "s3://bucket/lake/views/sold")])
    assert found.location == "s3a://bucket/lake/views/sold"


@pytest.mark.slow
def test_what_the_page_shows(
    shop: Shop, project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    while not shop.expected_now("sales_by_state"):
        transact(shop, 5)
        project.run(once=True)
    with capsys.disabled():
        result = CliRunner().invoke(main, ["register", "reports", "--print", "--project", str(shop.folder)])
    place = (shop.folder / "lake/views/sales_by_state").as_uri()
    wanted = f"CREATE TABLE IF NOT EXISTS `reports`.`sales_by_state` USING delta LOCATION '{place}';"
    assert result.exit_code == 0 and wanted in result.output.splitlines(), result.output
    monkeypatch.chdir(shop.folder)
    states = [str(row[0]) for row in shop.expected_now("sales_by_state")]
    page = (DOCS / "how-to/read-views.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```py\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(examples) == 3
    for example in examples:
        if "import polars" in example and find_spec("polars") is None:
            # `make test-cluster` installs it.
            continue
        exec(compile(example, "read-views.md", "exec"), {})
        printed = capsys.readouterr().out
        assert all(state in printed for state in states), (example, printed)


class _Catalog:
    """A catalog that takes one table, and is then away."""

    def __init__(self) -> None:
        self.tables: list[str] = []
        self.catalog = self

    def tableExists(self, name: str) -> bool:  # noqa: N802 - Spark's
        return name in self.tables

    def createTable(self, name: str, path: str, source: str) -> None:  # noqa: N802, ARG002 - Spark's
        if self.tables:
            raise OSError("the metastore is away")
        self.tables.append(name)


def test_what_was_made_before_the_catalog_failed_is_said() -> None:
    planned = plan_registrations("reports", [("one", "/lake/one"), ("two", "/lake/two")])
    with pytest.raises(ComputationFailed, match="one` registered, and then: the metastore is away"):
        register(cast(Any, _Catalog()), planned)


@pytest.mark.slow
def test_what_cannot_be_registered_leaves_the_catalog_as_it_is(shop: Shop, project: Project) -> None:
    """A table that is something else stays, and no other view is registered either."""
    spark, other, last = project.spark, shop.folder / "other", sorted(shop.views)[-1]
    with pytest.raises(InputError, match="there is no view `nothing`"):
        project.register("default", "nothing")
    # The Spark of the tests has no connector for Delta's tables.
    with pytest.raises(InputError, match="Spark's catalog refused it") as refused:
        project.register("default")
    assert "--print" in refused.value.hint and "Read views" in refused.value.hint
    assert not any(spark.catalog.tableExists(f"default.{view}") for view in shop.views)
    spark.range(3).write.parquet(str(other))
    spark.catalog.createTable(f"default.{last}", path=str(other), source="parquet")
    try:
        with pytest.raises(InputError, match="is another table, at file:"):
            project.register("default")
        assert [view for view in sorted(shop.views) if spark.catalog.tableExists(f"default.{view}")] == [last]
        assert spark.table(f"default.{last}").count() == 3
    finally:
        # The DataFrame API has no way to drop a table.
        spark.sql(f"DROP TABLE default.{last}")


@pytest.mark.slow
@pytest.mark.skipif(not _CONNECTOR.is_dir(), reason="`make test-cluster` fetches Delta's connector for Spark")
def test_oracle_a_registered_table_is_the_view_at_every_step(shop: Shop, project: Project) -> None:
    before = shop.expected_now("sales_by_state")
    project.close()
    jars = ",".join(str(each) for each in sorted(_CONNECTOR.glob("*.jar")))
    with subprocess.Popen(
        [sys.executable, "-c", _CATALOG, str(shop.folder), jars],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        line = process.stdout.readline()
        assert line == "before\n", line
        transact(shop, 6)
        process.stdin.write("\n")
        process.stdin.flush()
        said = process.stdout.read().splitlines()
    assert process.returncode == 0
    (first, second), old, new, _ = json.loads(said[-1])
    assert first == [True] * len(shop.views) and second == [False] * len(shop.views)
    assert Counter(map(tuple, old)) == before
    assert Counter(map(tuple, new)) == shop.expected_now("sales_by_state")
