"""Why rows of a view are as they are: source rows and transactions, judged by DuckDB over all states."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from oracle import frozen
from pyspark.sql import SparkSession
from shop import VIEWS, Shop, transact

from rollview.answer.why import ChangingTransaction, RowChange, paired
from rollview.cli import main
from rollview.errors import EvaluationError, PointError, ViewError
from rollview.maintain.snapshot import Reading, SnapshotReader
from rollview.project.project import Project

pytestmark = pytest.mark.slow

Row = tuple[Any, ...]
OWN = {
    **VIEWS,
    "ranges": """SELECT c.state, min(s.amount) AS lo, count(DISTINCT s.product_id) AS kinds
        FROM crm.customer c LEFT JOIN shop.sales s ON s.cust_id = c.cust_id
        GROUP BY c.state HAVING count(*) > 1""",
    "states_of_size": "SELECT n, count(*) AS states FROM sales_by_state GROUP BY n",
    "everything": """SELECT cust_id AS id, segment AS label FROM crm.customer
        UNION ALL SELECT product_id, kind FROM shop.product""",
}
SALES = "FROM shop.sales s JOIN crm.customer c ON s.cust_id = c.cust_id"
# The rows of each view and its source rows, written by hand; %s is the condition on the view's rows.
SOURCE_ROWS = {
    "sales_by_state": f"""SELECT s.sale_id, s.cust_id, s.amount, c.cust_id, c.state {SALES}
        WHERE EXISTS (SELECT 1 FROM sales_by_state v WHERE v.state IS NOT DISTINCT FROM c.state AND (%s))""",
    "sold": f"""SELECT s.sale_id, s.cust_id, s.product_id, s.amount, c.cust_id, c.state, p.product_id, p.kind
        {SALES} JOIN shop.product p ON s.product_id = p.product_id WHERE s.amount > 2
        AND EXISTS (SELECT 1 FROM sold v WHERE v.sale_id = s.sale_id AND (%s))""",
    "ranges": """SELECT c.cust_id, c.state, s.sale_id, s.cust_id, s.product_id, s.amount
        FROM crm.customer c LEFT JOIN shop.sales s ON s.cust_id = c.cust_id
        WHERE EXISTS (SELECT 1 FROM ranges v WHERE v.state IS NOT DISTINCT FROM c.state AND (%s))""",
    "states_of_size": """SELECT state, n, total, mean FROM sales_by_state b
        WHERE EXISTS (SELECT 1 FROM states_of_size v WHERE v.n = b.n AND (%s))""",
}
# The place of the group in the source rows of a view, and its first columns computed from them.
AGAIN: dict[str, tuple[int, Callable[[list[Row]], Row]]] = {
    "sales_by_state": (4, lambda rows: (rows[0][4], len(rows), _sum(row[2] for row in rows))),
    "states_of_size": (1, lambda rows: (rows[0][1], len(rows))),
}
CONDITIONS = {
    "sales_by_state": ("true", "state = 'a'", "v.state IS NULL", "n > 1 AND state < 'c'", "total > 5"),
    "sold": ("kind = 'a' OR kind IS NULL", "amount > 4"),
    "ranges": ("state = 'b'", "kinds < 2", "true"),
    "states_of_size": ("n = 1", "states > 1"),
    "everything": ("label = 'x'",),
}


def _sum(values: Any) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _judge(shop: Shop, project: Project, csn: int) -> duckdb.DuckDBPyConnection:
    """DuckDB with the tables as they were at a csn, and all views over them."""
    database = duckdb.connect(config={"threads": 1})
    shop.fill(database, shop.states_at(project, csn))
    for name, sql in shop.views.items():
        database.execute(f"CREATE VIEW {name} AS {sql}")
    return database


def _rows(database: duckdb.DuckDBPyConnection, sql: str) -> Counter[Row]:
    return Counter(map(frozen, database.execute(sql).fetchall()))


def _states(shop: Shop, project: Project, view: str, condition: str, upto: int) -> list[Counter[Row]]:
    """The rows of a view that meet a condition, at every csn."""
    found = []
    for csn in range(upto + 1):
        with _judge(shop, project, csn) as database:
            found.append(_rows(database, f"SELECT * FROM {view} v WHERE {condition}"))
    return found


def _net(each: ChangingTransaction) -> Counter[Row]:
    net: Counter[Row] = Counter()
    for change in each.changes:
        for row, times in ((change.before, -change.times), (change.after, change.times)):
            if row is not None:
                net[frozen(list(row.values()))] += times
    return Counter({row: count for row, count in net.items() if count})


def _table(found: pa.Table) -> Counter[Row]:
    columns = [column.to_pylist() for column in found.columns]
    return Counter(map(frozen, zip(*columns, strict=True)))


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))])
def test_oracle_source_rows_add_up_and_the_transactions_are_those(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    # DuckDB judges the first csn as every other one.
    monkeypatch.setattr("rollview.maintain.load.check_meaning", lambda *_: None)
    shop, chance = Shop(tmp_path / "shop", OWN), Random(seed)
    shop.random.seed(seed)
    transact(shop, 25)
    shop.begin()
    with Project.open(shop.folder, spark) as project:
        project.setup()
        for _ in range(2):
            transact(shop, 6)
            project.run(once=True)
        shop.match(project)
        # What the sources have now is not what they had.
        transact(shop, 2)
        last, listed = project.status().last_csn, 0
        for view in shop.views:
            condition = chance.choice(CONDITIONS[view])
            csn, since = sorted(chance.sample(range(last + 1), 2), reverse=True)
            why = project.why(view, condition.replace("v.", f"{view}."), as_of=csn, since=since)
            states = _states(shop, project, view, condition, csn)
            assert why.csn == csn and _table(why.table) == states[csn], (view, condition, csn)
            changes = {each.csn: _net(each) for each in why.transactions}
            wanted = {}
            for at in range(since + 1, csn + 1):
                states[at].subtract(after := states[at - 1].copy())
                if net := Counter({row: count for row, count in states[at].items() if count}):
                    wanted[at] = net
                states[at].update(after)
            assert changes == wanted and list(changes) == sorted(wanted, reverse=True), (view, condition)
            assert why.changed_by == len(wanted) and all(len(each.parts) == 1 for each in why.transactions)
            listed += len(wanted)
            if view == "everything":
                assert why.source_rows is None and "UNION combines the rows" in why.refusal
                continue
            assert why.source_rows is not None and why.source_rows.adds_up, (view, why.refusal)
            rows = _table(why.source_rows.table)
            with _judge(shop, project, csn) as database:
                assert rows == _rows(database, SOURCE_ROWS[view] % condition), (view, condition, csn)
            if view in AGAIN:
                place, row_of = AGAIN[view]
                groups: dict[Any, list[Row]] = {}
                for row in rows.elements():
                    groups.setdefault(row[place], []).append(row)
                again = [row_of(group) for group in groups.values()]
                assert Counter(again) == Counter(
                    row[: len(again[0])] for row in states[csn].elements() if again
                )
    assert listed


# One project for all that follows: a customer moves, and comes back.


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Any:
    recomputed = """CREATE MATERIALIZED VIEW recomputed TBLPROPERTIES ('rollview.policy' = 'snapshot') AS
        SELECT state, count(*) AS n FROM crm.customer GROUP BY state"""
    views = {"sales_by_state": VIEWS["sales_by_state"], "recomputed": recomputed}
    shop = Shop(tmp_path_factory.mktemp("why") / "shop", views)
    shop.connections["crm"].execute("INSERT INTO customer VALUES (1, 'a', 'x'), (2, 'b', 'x')")
    shop.connections["shop"].execute("INSERT INTO sales VALUES (1, 1, 1, 5), (2, 1, 1, 7), (3, 2, 1, 1)")
    with Project.open(shop.folder, spark) as project:
        project.setup()
        for state in "babababac":
            shop.connections["crm"].execute("UPDATE customer SET state = ? WHERE cust_id = 1", (state,))
            # A file of the change log each time.
            project.capture()
        project.run(once=True)
        yield shop, project
    shop.close()


@pytest.mark.parametrize(
    ("condition", "error", "reason"),
    [
        ("nope = 1", ViewError, "`nope` cannot be resolved"),
        ("_csn > 0", ViewError, "`_csn` cannot be resolved"),
        ("s.amount > 0", ViewError, "cannot be resolved"),
        ("state", ViewError, "is not a boolean"),
        ("sum(n) > 1", ViewError, "contains invalid expressions"),
        ("1 / (n - 2) > 1", EvaluationError, "Division by zero"),
        ("v(state)", ViewError, "the function v"),
        ("true) UNION ALL (SELECT * FROM shop.sales", ViewError, "cannot contain a query"),
        ("true) -- ", ViewError, "is not a condition"),
        ("n > 0 AND `n` > ${n}", ViewError, "variables"),
    ],
)
def test_a_condition_passes_the_gate_and_names_columns_of_the_view(
    moved: tuple[Shop, Project], condition: str, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error) as caught:
        moved[1].why("sales_by_state", condition)
    assert reason in str(caught.value)


def test_rows_that_are_gone_are_explained_by_what_removed_them(
    moved: tuple[Shop, Project], spark: SparkSession
) -> None:
    shop, project = moved
    why = project.why("sales_by_state", "state = 'a'")
    assert why.table.num_rows == 0
    assert why.source_rows is not None and why.source_rows.table.num_rows == 0 and why.source_rows.adds_up
    row = {"state": "a", "n": 2, "total": 12, "mean": 6.0}
    changes = [each.changes for each in why.transactions]
    removed, added = (RowChange(row, None),), (RowChange(None, row),)
    assert changes == [removed, *[added, removed] * 4]
    assert [[part.source for part in each.parts] for each in why.transactions] == [["crm"]] * 9
    newest = project.why("sales_by_state", "state = 'a'", limit=1)
    assert newest.changed_by == 9 and newest.transactions == why.transactions[:1]
    typed = ["why", "sales_by_state", "--where", "state = 'a'", "--project", str(shop.folder)]
    shown = CliRunner().invoke(main, [*typed, "--limit", "0"], obj=spark).stdout
    assert "no rows" in shown and "changed by 9 transactions after csn 0 up to csn 9" in shown
    assert "… and 9 more" in shown
    never = [*typed[:3], "state = 'z'", *typed[4:]]
    assert "no transaction after csn 0 up to csn 9" in CliRunner().invoke(main, never, obj=spark).stdout


def test_a_view_without_a_delta_has_source_rows_alone(
    moved: tuple[Shop, Project], spark: SparkSession
) -> None:
    shop, project = moved
    project.refresh("recomputed")
    why = project.why("recomputed", "state = 'c'")
    assert why.transactions == () and why.source_rows is not None and why.source_rows.adds_up
    assert why.source_rows.table.to_pylist() == [{"customer.cust_id": 1, "customer.state": "c"}]
    typed = ["why", "recomputed", "--where", "state = 'c'", "--project", str(shop.folder)]
    shown = CliRunner().invoke(main, typed, obj=spark)
    assert shown.exit_code == 0 and "no changes of the view up to csn 9 are listed" in shown.stdout, (
        shown.output
    )
    assert "recomputed from these rows, the view shows the same" in shown.stdout


def test_points_in_time_that_cannot_be_explained(moved: tuple[Shop, Project]) -> None:
    _, project = moved
    with pytest.raises(PointError, match="`since` is csn 2, and the rows are those of csn 1"):
        project.why("sales_by_state", as_of=1, since=2)
    with pytest.raises(PointError, match="cannot be explained at csn 99"):
        project.why("sales_by_state", as_of=99)
    with pytest.raises(PointError, match="is not a valid point in time"):
        project.why("sales_by_state", since="yesterday")


def test_source_rows_reach_as_far_back_as_the_change_log_is_complete(
    moved: tuple[Shop, Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of nine files, the first is pruned while somebody reads; then those that are left become one."""
    _, project = moved
    tables = project._warehouse.tables
    log = tables.change_log(project._warehouse.catalog.captured.tables()["crm.customer"])

    def numbers() -> list[int | None]:
        found = [project.why("sales_by_state", "n = 2", as_of=csn).source_rows for csn in (0, 1, 2)]
        return [None if each is None else each.table.num_rows for each in found]

    assert len(log.files()) == 9 and numbers() == [2, 0, 2]
    reading = SnapshotReader.read

    def read_and_prune(self: SnapshotReader, *given: Any) -> dict[str, Reading]:
        found = reading(self, *given)
        assert log.prune(1, tables.signed("prune", 1, 9, "prune")) == 2
        return found

    with monkeypatch.context() as pruned:
        pruned.setattr(SnapshotReader, "read", read_and_prune)
        why = project.why("sales_by_state", as_of=0)
    assert why.source_rows is None and "changes of crm.customer after csn 0 were pruned" in why.refusal
    assert numbers() == [None, 0, 2]
    assert log.compact(tables.signed("compact", 2, 9, "compact")) is not None and len(log.files()) == 1
    assert numbers() == [None, 0, 2]


def test_condensed_changes_are_one_entry_and_pruned_change_logs_say_so(
    moved: tuple[Shop, Project], spark: SparkSession
) -> None:
    shop, project = moved
    project.condense("sales_by_state", 0, 8)
    # Back and forth is nothing.
    (last,) = project.why("sales_by_state", "state = 'a'", since=0).transactions
    assert (last.first_csn, last.csn, len(last.parts)) == (9, 9, 1)
    project.condense("sales_by_state", 0, 9)
    (only,) = project.why("sales_by_state", "state = 'c'").transactions
    assert (only.first_csn, only.csn, only.parts) == (1, 9, ())
    shop.write_project(retention="{changes: 0s}")
    with Project.open(shop.folder, spark) as other:
        other.maintain()
        pruned = other.why("sales_by_state", "state = 'a'", as_of=0)
        assert pruned.table.num_rows == 1 and pruned.source_rows is None
        assert "no answer as of csn 0: crm.customer is not available there" in pruned.refusal
        assert other.why("sales_by_state").source_rows is not None


def test_a_wrong_view_does_not_add_up(moved: tuple[Shop, Project], spark: SparkSession) -> None:
    """Somebody has written into a file of the lake."""
    shop, _ = moved
    (uri,) = DeltaTable(str(shop.folder / "lake" / "views" / "sales_by_state")).file_uris()
    file = Path(uri.removeprefix("file://"))
    before = file.read_bytes()
    table = pq.read_table(file)
    place, totals = table.column_names.index("total"), table["total"].to_pylist()
    wrong = pa.array([total + 1 for total in totals], table.field("total").type)
    pq.write_table(table.set_column(place, table.field("total"), wrong), file)
    typed = ["why", "sales_by_state", "--where", "state = 'c'", "--project", str(shop.folder)]
    shown = CliRunner().invoke(main, typed, obj=spark)
    assert (
        shown.exit_code == 1 and "recomputed from these rows, 2 rows of the view would differ" in shown.output
    )
    found = CliRunner().invoke(main, [*typed, "--json"], obj=spark)
    assert found.exit_code == 1 and json.loads(found.stdout)["source_rows"]["adds_up"] is False
    file.write_bytes(before)


def test_only_one_row_for_one_row_is_a_replacement() -> None:
    def row(key: int, value: int, count: int) -> dict[str, int]:
        return {"k": key, "v": value, "_count": count}

    names = ("k", "v")
    one, two = {"k": 1, "v": 1}, {"k": 1, "v": 2}
    assert paired([row(1, 1, -1), row(1, 2, 1)], names, ("k",)) == (RowChange(one, two),)
    apart = (RowChange(one, None), RowChange(None, two))
    assert paired([row(1, 1, -1), row(1, 2, 1)], names, None) == apart
    assert paired([row(1, 1, -2), row(1, 2, 1)], names, ("k",))[0] == RowChange(one, None, 2)
    assert len(paired([row(1, 1, -1), row(1, 2, 1), row(1, 3, 1)], names, ("k",))) == 3
