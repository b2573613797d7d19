"""The SQL means what Spark says: odd queries are right or refused, and never understood differently."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from rollview.algebra.expression import Column, call
from rollview.algebra.view import View
from rollview.errors import Misunderstood, ViewError
from rollview.operators.draft import Draft
from rollview.operators.groups import ROWS, SumGroups
from rollview.service import meaning
from rollview.service.project import Project

pytestmark = pytest.mark.slow

T = {
    "id": pa.array([1, 2, 3, 4], pa.int64()),
    "k": pa.array(["1", "2", None, "1"]),
    "f": pa.array([True, False, None, True]),
    "g": pa.array([False, False, True, True]),
    "h": pa.array([True, None, True, False]),
    "a": pa.array([Decimal(1), Decimal(2), Decimal(2), None], pa.decimal128(38, 10)),
    "b": pa.array(
        [Decimal("1234567890123456789.1234"), Decimal(2), Decimal(5), -Decimal(3)], pa.decimal128(34, 4)
    ),
    "c": pa.array([Decimal("1.1"), Decimal(2), Decimal(5), Decimal(3)], pa.decimal128(28, 10)),
    "w": pa.array([Decimal("0.1"), Decimal(2), Decimal(5), Decimal(3)], pa.decimal128(38, 18)),
    "day": pa.array([date(2024, 1, 1)] * 4),
}
U = {
    "id": [1, 2, 2],
    "w": ["x", "y", None],
    "we`ird": ["p", "q", "p"],
    "all": [1, 2, 3],
    "ünï": ["é", "b", "c"],
}

RIGHT = (
    # One view with all precedences: `setup` compares them over invented rows, `verify` over these.
    """SELECT id, k || 5 + 7 AS p1, f = g < h AS p2, f <> g > h AS p3, f = g IN (true, false) AS p4,
        f = g BETWEEN false AND true AS p5, f = g NOT IN (true) AS p6, f = g IS NULL AS p7,
        f IS DISTINCT FROM g = h AS p8, NOT f = g AND h AS p9, - id * 2 % 3 AS p10, id - 1 || k AS p11
        FROM d.t WHERE k = '1' OR k = '2'""",
    """SELECT f, avg(a) AS a, avg(b) AS b, avg(c) AS c, avg(w) AS w, avg(c * 2) AS d, avg(-b) AS e
        FROM d.t GROUP BY f""",
    """SELECT avg(x) AS x, avg(x + 1) * 2 AS y FROM (
        SELECT c * 2 AS x FROM d.t UNION ALL SELECT b FROM d.t UNION ALL SELECT a FROM d.t) q""",
    "SELECT avg(n) AS n FROM (SELECT f, sum(c) AS n FROM d.t GROUP BY f) q",
    "SELECT v.id, u.w FROM d.u v JOIN (d.t JOIN d.u ON t.id = u.id) ON v.id = t.id",
    "SELECT t.id, u.w FROM (d.t JOIN d.u ON t.id = u.id)",
    "SELECT `we``ird` AS `x``y`, count(*) AS `n``n` FROM d.u GROUP BY `we``ird`",
    "SELECT `we``ird`, `ünï` AS `ü`, id FROM d.u",
    "SELECT id, all FROM d.u",
    "SELECT ALL id FROM d.u",
    "SELECT id /* FROM d.x */ AS y -- , z\nFROM d.t;",
    "SELECT D.t.ID, d.T.k, T.day FROM D.T",
    "SELECT avg(CAST(c AS DECIMAL(38, 30))) AS x FROM d.t",
    # How many digits a quotient of sums has depends on the digits that the sums have.
    """SELECT f, g, sum(CAST(c AS DECIMAL(7, 2))) / sum(CAST(w AS DECIMAL(7, 2))) AS ratio,
        rank() OVER (PARTITION BY grouping(f) ORDER BY sum(c) / sum(w)) AS place,
        sum(c) * sum(w) / 7 AS product FROM d.t GROUP BY ROLLUP (f, g)""",
    """SELECT sum(p) / sum(q) AS ratio FROM (
        SELECT f, sum(CAST(c AS DECIMAL(7, 2))) AS p, sum(CAST(w AS DECIMAL(9, 3))) AS q
        FROM d.t GROUP BY f)""",
)

REFUSED = {
    "SELECT all FROM d.u": "Spark finds 1 columns where rollview finds 0",
    "SELECT all, id FROM d.u": "in backticks",
    "SELECT day - day AS x FROM d.t": "the column `x` has the type interval day",
    "SELECT id FROM d.t WHERE NULL": "Spark does not accept it: Cannot resolve",
    "SELECT ünï FROM d.u": "must be back quoted",
    "SELECT NULL AS x, id FROM d.t": "the column `x` has no type",
    "SELECT id FROM d.t WHERE f IS NULL = g": "this cannot stand here: `=`",
    "SELECT id, FROM d.t": "nothing stands behind the comma",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project over two Delta tables, without views."""
    for name, columns in (("t", T), ("u", U)):
        write_deltalake(str(tmp_path / "d" / name), pa.table(columns))
    (tmp_path / "rollview.yml").write_text("name: x\nsources:\n  d: {type: delta, path: ./d}\n")
    (tmp_path / "views").mkdir()
    return tmp_path


def _write(folder: Path, *queries: str) -> None:
    for number, sql in enumerate(queries):
        text = f"CREATE MATERIALIZED VIEW v{number} AS {sql}"
        (folder / "views" / f"v{number}.sql").write_text(text)


def test_odd_queries_are_right(folder: Path, spark: SparkSession) -> None:
    _write(folder, *RIGHT)
    with Project.open(folder, spark) as project:
        project.setup()
        assert [each.view for each in project.verify() if not each.is_right] == []
        more = {name: values.slice(0, 2) for name, values in T.items()}
        write_deltalake(str(folder / "d" / "t"), pa.table(more), mode="append")
        project.run(once=True)
        assert [each.view for each in project.verify() if not each.is_right] == []
        assert project.query("SELECT `x``y`, `n``n` FROM v6 WHERE `x``y` = 'q'").rows.collect() == [("q", 1)]


def test_what_cannot_be_is_refused_with_its_file_before_anything_is_changed(
    folder: Path, spark: SparkSession
) -> None:
    for sql, reason in REFUSED.items():
        _write(folder, sql)
        with Project.open(folder, spark) as project, pytest.raises(ViewError) as caught:
            project.setup()
        assert str(caught.value).startswith("v0.sql: "), sql
        assert reason in str(caught.value), sql
    assert not (folder / "lake").exists()


def test_a_view_that_is_understood_differently_is_refused(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake in the translation: AVG divides by all rows. No rows of the sources are needed to find it."""
    monkeypatch.setattr(
        SumGroups,
        "_average",
        lambda self, _, argument, total, count: call("/", total, Column(ROWS)),
    )
    _write(folder, "SELECT f, avg(id) AS a FROM d.t GROUP BY f")
    with Project.open(folder, spark) as project, pytest.raises(Misunderstood) as caught:
        project.setup()
    assert "is understood differently from Spark" in caught.value.message
    assert "rollview's normal form:" in caught.value.message and "Spark's plan:" in caught.value.message
    assert not (folder / "lake").exists()


def test_the_rows_of_the_sources_are_tried_as_well(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the invented rows show nothing; of large tables a sample must be enough."""
    monkeypatch.setattr("rollview.service.project.check_all_by_invention", lambda *_: None)
    monkeypatch.setattr(meaning, "SAMPLED_ROWS", 200)
    many = pa.table({"id": pa.array(range(4000), pa.int64()), "v": pa.array([1, None] * 2000, pa.int64())})
    for name in ("m", "n"):
        write_deltalake(str(folder / "d" / name), many)
    _write(folder, "SELECT m.v, count(n.v) AS c FROM d.m JOIN d.n ON m.id = n.id GROUP BY m.v")
    tried: list[int] = []
    original = meaning.check_meaning

    def count_and_check(session: SparkSession, view: View, layout: object, tables: object) -> None:
        tried.append(sum(bag.frame.count() for bag in tables.values()))  # type: ignore[attr-defined]
        original(session, view, layout, tables)  # type: ignore[arg-type]

    monkeypatch.setattr("rollview.service.load.check_meaning", count_and_check)
    with Project.open(folder, spark) as project:
        project.setup()
        assert [tuple(row) for row in project.read("v0").orderBy("v").collect()] == [(None, 0), (1, 2000)]
    assert len(tried) == 1 and 50 < tried[0] < 800
    # With a count of what is not stored: otherwise no row of the sources would be read.
    _write(folder, "SELECT m.v, count(n.id) AS c FROM d.m JOIN d.n ON m.id = n.id WHERE m.v = 1 GROUP BY m.v")
    above = Draft.above
    monkeypatch.setattr(Draft, "above", lambda draft, _, outputs: above(draft, (), outputs))
    with Project.open(folder, spark) as project:
        with pytest.raises(Misunderstood):
            project.setup()
        # The old content stays.
        assert project.read("v0").count() == 2


def test_of_large_tables_below_stages_a_sample_is_tried(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage is joined with tables that are read, and is itself none of them."""
    monkeypatch.setattr(meaning, "SAMPLED_ROWS", 200)
    many = pa.table({"id": pa.array(range(2000), pa.int64()), "v": pa.array([1, 2] * 1000, pa.int64())})
    for name in ("m", "n"):
        write_deltalake(str(folder / "d" / name), many)
    _write(
        folder,
        "SELECT m.id FROM d.m WHERE m.v = (SELECT max(n.v) FROM d.n WHERE n.id = m.id)",
        "SELECT t.most, count(*) AS c FROM d.m LEFT JOIN"
        " (SELECT id, max(v) AS most FROM d.n GROUP BY id) t ON m.id = t.id GROUP BY t.most",
    )
    with Project.open(folder, spark) as project:
        project.setup()
        assert project.read("v0").count() == 2000
        assert [tuple(row) for row in project.read("v1").orderBy("most").collect()] == [(1, 1000), (2, 1000)]
