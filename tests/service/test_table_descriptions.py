"""A view's comment, those of its columns and its properties reach its Delta table, and follow the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from shop import Shop, shown, transact

from rollview.catalog import LoadStep
from rollview.errors import InputError
from rollview.lake import LakeTable
from rollview.project.project import Project

pytestmark = pytest.mark.slow

QUERY = "SELECT cust_id, state FROM crm.customer"
HEADS = {
    "all": """CREATE MATERIALIZED VIEW sold (cust COMMENT 'who\\n"bought"', state) COMMENT 'it''s sold'
        TBLPROPERTIES ('delta.checkpointInterval' = '20', quality = 'gold') AS """,
    "others": """CREATE MATERIALIZED VIEW sold (cust, state COMMENT 'of America') COMMENT 'sold, still'
        TBLPROPERTIES ('owner' = 'sales', 'rollview.on_loss' = 'reload') AS """,
    "none": "CREATE MATERIALIZED VIEW sold (cust, state) AS ",
}
OURS = {"delta.checkpointInterval": "50", "delta.logRetentionDuration": "interval 1 hours"}


def described(shop: Shop) -> tuple[str, dict[str, str], dict[str, str]]:
    """Comment, properties and comments of columns, as deltalake reads them."""
    table = DeltaTable(str(shop.folder / "lake/views/sold"))
    fields = json.loads(table.schema().to_json())["fields"]
    comments = {each["name"]: each["metadata"]["comment"] for each in fields if each["metadata"]}
    return table.metadata().description or "", dict(table.metadata().configuration), comments


def write(shop: Shop, head: str) -> None:
    shop.views = {"sold": head + QUERY}
    shop.write_project()


def test_a_description_reaches_the_table_and_follows_the_file(shop: Shop, spark: SparkSession) -> None:
    write(shop, HEADS["all"])
    transact(shop, 12)
    with Project.open(shop.folder, spark) as project:
        project.setup()
        assert described(shop) == (
            "it's sold",
            {**OURS, "delta.checkpointInterval": "20", "quality": "gold"},
            {"cust": 'who\n"bought"'},
        )
        before = project.read("sold").collect()
        for name, expected in {
            "others": ("sold, still", {**OURS, "owner": "sales"}, {"state": "of America"}),
            "none": ("", OURS, {}),
            "all": (
                *("it's sold", {**OURS, "delta.checkpointInterval": "20", "quality": "gold"}),
                {"cust": 'who\n"bought"'},
            ),
        }.items():
            write(shop, HEADS[name])
            assert [each.action for each in project.plan_setup().shown if hasattr(each, "view")] == [
                "keep_view"
            ]
            report = project.setup()
            assert report.unchanged == ["sold"] and not report.loaded
            assert described(shop) == expected
            assert project.read("sold").collect() == before
        version = table(shop).version()
        project.setup()
        assert table(shop).version() == version, "the same description is not written again"
        # What is stored continues behind a version that has only another description.
        transact(shop, 6)
        project.run(once=True)
        assert shown(project, "sold") == shop.expected_now("sold")
        assert described(shop)[0] == "it's sold"


def test_a_description_outlives_loads(shop: Shop, spark: SparkSession) -> None:
    write(shop, HEADS["none"])
    transact(shop, 12)
    with Project.open(shop.folder, spark) as project:
        project.setup()
        version = table(shop).version()
        write(shop, HEADS["others"])
        project.setup()
        assert table(shop).same_rows(version) == version + 1
        # Other columns are another schema, and a reload another content.
        shop.views = {"sold": HEADS["others"].replace("(cust, ", "(buyer COMMENT 'x', ") + QUERY}
        shop.write_project()
        project.setup()
        assert described(shop) == (
            "sold, still",
            {**OURS, "owner": "sales"},
            {"buyer": "x", "state": "of America"},
        )
        project.setup(reload=["sold"])
        assert described(shop)[2] == {"buyer": "x", "state": "of America"}


def test_a_load_that_died_takes_no_description_away(shop: Shop, spark: SparkSession) -> None:
    """The rows are those of the version that the catalog knows, with the description that came since."""
    write(shop, HEADS["none"])
    transact(shop, 12)
    with Project.open(shop.folder, spark) as project:
        project.setup()
        write(shop, HEADS["others"])
        project.setup()
        before = project.read("sold").collect()
        catalog, tables = project._warehouse.catalog, project._warehouse.tables
        with catalog.lease("propagate:sold") as lease:
            step = catalog.steps.begin(lease, "sold", LoadStep())
            rows = tables.of_view("sold", 1).rows
            rows.replace(rows.files(), [], tables.signed("load:sold", step.id, 0, "load"))
        transact(shop, 3)
        project.run(once=True)
        assert described(shop) == ("sold, still", {**OURS, "owner": "sales"}, {"state": "of America"})
        assert shown(project, "sold") == shop.expected_now("sold")
        assert len(before) > 1


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("(cust_id INT, state STRING)", r"`cust_id` is int in the list, and bigint in the query"),
        (
            "(state STRING, cust_id BIGINT)",
            "the columns are state, cust_id in the list, and in the query cust_id",
        ),
        ("(cust_id BIGINT)", "names 1 columns, and there are 2"),
        ("(cust_id BIGINT, state NUMBER)", "has the type NUMBER, which Spark does not know"),
    ],
)
def test_types_in_a_list_are_those_of_the_query(
    columns: str, reason: str, shop: Shop, spark: SparkSession
) -> None:
    write(shop, f"CREATE MATERIALIZED VIEW sold {columns} AS ")
    with Project.open(shop.folder, spark) as project, pytest.raises(InputError, match=reason) as refused:
        project.setup()
    assert "sold.sql" in str(refused.value) and "line 1, column" in str(refused.value)


def test_a_list_with_types_says_how_names_are_written(shop: Shop, spark: SparkSession) -> None:
    write(shop, "CREATE MATERIALIZED VIEW sold (Cust_ID LONG COMMENT 'x', STATE STRING) USING delta AS ")
    transact(shop, 9)
    with Project.open(shop.folder, spark) as project:
        project.setup()
        assert project.read("sold").columns == ["Cust_ID", "STATE"]
        assert described(shop)[2] == {"Cust_ID": "x"}
        assert shown(project, "sold") == shop.answer("sold", {n: shop.copy(n) for n in shop.connections})


def table(shop: Shop) -> LakeTable:
    return LakeTable(Path(shop.folder / "lake/views/sold"))
