"""Deletions and modifications under a key that a view keeps: the stored view answers instead of a source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from shop import Shop, check_readable_csns, shown, transact

from rollview.maintain.relations import Relations
from rollview.project.project import Project
from rollview.storage import stored_view

pytestmark = pytest.mark.slow

SOLD = """SELECT s.sale_id, c.cust_id, s.product_id AS product, c.state, p.kind, s.amount
    FROM shop.sales s JOIN crm.customer c ON s.cust_id = c.cust_id
    JOIN shop.product p ON s.product_id = p.product_id WHERE s.amount > 2"""
PAIRS = """SELECT a.product_id AS id, b.product_id AS other, a.kind, b.kind AS of FROM shop.product a
    JOIN shop.product b ON a.parent_id = b.parent_id"""
FAR = """SELECT s.sale_id, s.amount + c.cust_id AS both, c.cust_id, c.segment FROM shop.sales s
    JOIN crm.customer c ON s.cust_id <= c.cust_id AND s.amount < c.cust_id + 4"""
COMPLETE = {"sold": SOLD, "pairs": PAIRS, "far": FAR}
STRONG = {
    f"{name}_strong": f"CREATE MATERIALIZED VIEW {name}_strong TBLPROPERTIES"
    f" ('rollview.consistency' = 'strong') AS {sql}"
    for name, sql in COMPLETE.items()
}


STEPS = (
    (("shop", "DELETE FROM sales WHERE sale_id % 5 = 1"),),
    (("crm", "UPDATE customer SET segment = 'z', state = 'd' WHERE cust_id < 4"),),
    (("shop", "UPDATE product SET kind = 'new' WHERE product_id <= 2"),),
    (
        ("shop", "DELETE FROM sales WHERE sale_id % 5 = 2"),
        ("shop", "UPDATE sales SET amount = amount + 1"),
        ("crm", "DELETE FROM customer WHERE cust_id = 2"),
        ("shop", "DELETE FROM product WHERE product_id = 3"),
    ),
    (
        ("shop", "UPDATE sales SET amount = 9 WHERE sale_id > 10"),
        ("shop", "INSERT OR REPLACE INTO sales VALUES (3, 1, 1, 5)"),
    ),
)


def _commit(shop: Shop, database: str, statement: str) -> None:
    """One transaction, of which the oracle knows if it changes anything."""
    if shop.connections[database].execute(statement).rowcount:
        shop.states[database].append(shop.copy(database))


def test_oracle_every_state(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of one transaction and of several; joins of three tables, of a table with itself, by ranges."""
    read: list[str] = []
    true_read = stored_view.StoredView.state_with

    def state_with(stored: stored_view.StoredView, csn: int, keys: Any) -> Any:
        read.append(stored.view.name)
        return true_read(stored, csn, keys)

    monkeypatch.setattr(stored_view.StoredView, "state_with", state_with)
    shop = Shop(tmp_path / "shop", COMPLETE | STRONG)
    transact(shop, 40)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        for step in STEPS:
            for database, statement in step:
                _commit(shop, database, statement)
            transact(shop, len(step) - 1)
            project.run(once=True)
            compared, _ = check_readable_csns(shop, project)
    assert compared > 10
    assert set(COMPLETE) | set(STRONG) <= set(read)


def _begun(folder: Path, *views: str) -> Shop:
    shop = Shop(folder, {name: (COMPLETE | STRONG)[name] for name in views})
    crm, sales = shop.connections["crm"], shop.connections["shop"]
    crm.execute("INSERT INTO customer VALUES (1, 'a', 'x'), (2, 'b', 'y')")
    sales.execute("INSERT INTO product VALUES (1, 'p', NULL), (2, 'q', NULL)")
    sales.execute("INSERT INTO sales VALUES (1, 1, 1, 5), (2, 1, 2, 6), (3, 2, 1, 7), (4, 2, 2, 8)")
    shop.begin()
    return shop


ANSWERED = {
    "a row goes": ("shop", "DELETE FROM sales WHERE sale_id = 1"),
    "a row changes": ("shop", "UPDATE sales SET amount = amount + 1 WHERE sale_id > 1"),
    "another relation's row changes": ("crm", "UPDATE customer SET state = 'z' WHERE cust_id = 1"),
    "its key is shown by an equal column": ("shop", "UPDATE product SET kind = 'r'"),
    "a row no longer passes": ("shop", "UPDATE sales SET amount = 1 WHERE sale_id = 2"),
    "all rows of a relation go": ("crm", "DELETE FROM customer"),
}


@pytest.fixture(scope="module")
def answering(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Any:
    shop = _begun(tmp_path_factory.mktemp("kept") / "shop", "sold", "sold_strong")
    with Project.open(shop.folder, spark) as project:
        project.setup()
        yield shop, project
    shop.close()


@pytest.mark.parametrize("name", ANSWERED)
def test_no_source_is_asked(
    answering: Any, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Nor does it take a Spark job."""
    shop, project = answering
    monkeypatch.setattr(Relations, "lookup", lambda *_: pytest.fail("a source is asked"))
    database, statement = ANSWERED[name]
    shop.connections[database].execute(statement)
    before = project.explain("sold").work
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(None)
    project.run(once=True)
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(None)) == len(jobs)
    for view in shop.views:
        assert shown(project, view) == shop.expected_now(view), view
    after = project.explain("sold").work
    assert after.lookups == before.lookups and after.spared > before.spared


def test_a_view_that_is_shown_at_an_earlier_moment_answers_for_the_newest(
    tmp_path: Path, spark: SparkSession
) -> None:
    shop = _begun(tmp_path / "shop", "sold")
    sales = shop.connections["shop"]
    with Project.open(shop.folder, spark) as project:
        project.setup()
        sales.execute("UPDATE sales SET amount = 50 WHERE sale_id = 1")
        sales.execute("INSERT INTO sales VALUES (9, 2, 2, 3)")
        project.capture()
        project.propagate("sold")
        sales.execute("DELETE FROM sales WHERE sale_id IN (1, 9)")
        project.capture()
        before = project.explain("sold").work.lookups
        project.propagate("sold")
        assert project.explain("sold").work.lookups == before
        project.apply("sold")
        assert shown(project, "sold") == shop.expected_now("sold")


def test_a_large_view_is_asked_only_by_what_it_is_sorted_by(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_view, "_FEW_ROWS", 0)
    shop = _begun(tmp_path / "shop", "sold")
    with Project.open(shop.folder, spark) as project:
        project.setup()
        asked = []
        for database, statement in (
            ("crm", "UPDATE customer SET state = 'z'"),
            ("shop", "DELETE FROM sales WHERE sale_id = 1"),
        ):
            shop.connections[database].execute(statement)
            project.run(once=True)
            asked.append(project.explain("sold").work.lookups)
            assert shown(project, "sold") == shop.expected_now("sold")
        assert asked[0] > 0 and asked[1] == asked[0]
