"""The SQL means what Spark says: odd queries are right or refused, and never understood differently."""

from __future__ import annotations

import random
from collections import Counter
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from shop import shown, states_of

from rollview.algebra.bag import COUNT
from rollview.algebra.derivation import ROWS
from rollview.algebra.expression import Column, call
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.bags import PlacedBag
from rollview.errors import Misunderstood, SetupIncomplete, ViewError
from rollview.operators.draft import Draft
from rollview.operators.groups import SumGroups
from rollview.planning import parse_view
from rollview.project.project import Project
from rollview.runtime.session import Session
from rollview.views import equivalence_check as meaning
from rollview.views.comparison import Difference, _Spread, _without_pairs
from rollview.views.define import SparkTypes
from rollview.views.layout import layout_of

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
    # One view with all precedences: `setup` compares them over random rows, `verify` over these.
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
    "SELECT id FROM d.t WHERE f IS NULL = g": "this is not allowed here: `=`",
    "SELECT id, FROM d.t": "nothing follows the comma",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project over two Delta tables, without views."""
    for name, columns in (("t", T), ("u", U)):
        write_deltalake(str(tmp_path / "d" / name), pa.table(columns))
    (tmp_path / "rollview.yml").write_text("name: x\nsources:\n  d: {type: delta, path: ./d}\n")
    (tmp_path / "views").mkdir()
    return tmp_path


WIDTHS = ((1, 0), (3, 3), (5, 2), (8, 8), (9, 2), (11, 0), (11, 5), (12, 2), (18, 4), (27, 6), (38, 10))
"""Spark adds up to 8 digits as bigint and averages up to 11 as doubles; sums stay decimals of up to 38."""
_OF_NUMBERS = ("sum", "avg", "try_sum", "try_avg", "median", "stddev", "max")
SHAPES_OF_AVERAGES = (
    # Groups by sums alone, by their values, with repetitions left out, and all of them as one.
    "SELECT g, {sums} FROM n.t GROUP BY g",
    "SELECT g, count(DISTINCT c) AS d, {all} FROM n.t GROUP BY g",
    "SELECT count(DISTINCT c) AS d, count(DISTINCT g) AS e, {all} FROM n.t",
    "SELECT g, {distinct} FROM n.t GROUP BY g",
    "SELECT g, {filtered} FROM n.t GROUP BY g",
    "SELECT g, c % 2 AS h, {sums} FROM n.t GROUP BY CUBE (g, c % 2)",
    "SELECT g, avg(w5_2) / 3 AS a, avg(w9_2) * avg(w5_2) AS b, sum(w5_2) / sum(w9_2) AS r,"
    " round(avg(w11_5), 2) AS s FROM n.t GROUP BY g HAVING avg(w5_2) > -100",
    "SELECT avg(a) AS aa, sum(s) AS ss, avg(s) AS sa FROM"
    " (SELECT c, avg(w5_2) AS a, sum(w5_2) AS s FROM n.t GROUP BY c)",
    "SELECT id, {windows} FROM n.t",
    "SELECT g, (SELECT avg(u.w5_2) FROM n.t u WHERE u.g = t.g) AS a FROM n.t t WHERE id < 9",
)


def _numbers(seed: int) -> pa.Table:
    """Rows of decimals of all widths; of one, 320 in a group have a sum that Spark rounds in its own way."""
    chance = random.Random(seed)
    names, columns = ["id", "g", "c"], [list(range(400)), [number < 320 for number in range(400)], []]
    columns[2] = [chance.randint(1, 9) for _ in range(400)]
    kinds = [pa.int64(), pa.bool_(), pa.int32()]
    for precision, scale in WIDTHS:
        largest = 10 ** min(precision, 30) - 1
        picks = [
            chance.choice((chance.randint(-largest, largest), chance.randint(-9, 9))) for _ in range(400)
        ]
        if (precision, scale) == (5, 2):
            picks = [413] * 319 + [132294 - 319 * 413] + picks[320:]
        names.append(f"w{precision}_{scale}")
        columns.append(
            [
                None if chance.random() < 0.1 and precision != 5 else Decimal(each).scaleb(-scale)
                for each in picks
            ]
        )
        kinds.append(pa.decimal128(precision, scale))
    counts = pa.array([1] * 400, pa.int64())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.Table.from_arrays([*arrays, counts], names=[*names, COUNT])


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))])
def test_decimals_of_every_width_are_added_up_and_averaged_as_spark_does(
    spark: SparkSession, seed: int
) -> None:
    numbers = _numbers(seed)
    names = [name for name in numbers.column_names if name.startswith("w")]
    bag = PlacedBag.of_rows(spark, numbers)
    kinds = tuple(kind for name, kind in bag.frame.dtypes if name != COUNT)
    table = Table("n", "t", tuple(bag.columns), types=kinds)
    texts = {
        "sums": ", ".join(
            f"{each}({name}) AS {each}_{name}" for name in names for each in ("sum", "avg", "count")
        ),
        "all": ", ".join(f"{each}({name}) AS {each}_{name}" for name in names for each in _OF_NUMBERS),
        "distinct": ", ".join(
            f"avg(DISTINCT {name}) AS a_{name}, sum(DISTINCT {name}) AS s_{name}" for name in names
        ),
        "filtered": ", ".join(f"avg({name}) FILTER (WHERE c > 3) AS a_{name}" for name in names),
        "windows": ", ".join(f"avg({name}) OVER (PARTITION BY g) AS a_{name}" for name in names),
    }
    for shape in SHAPES_OF_AVERAGES:
        sql = shape.format(**texts)
        view = parse_view(sql, (table,), "v", SparkTypes(cast(Session, SimpleNamespace(spark=spark))))
        try:
            meaning.check_meaning(spark, view, layout_of(spark, view), {"n.t": bag})
        except Misunderstood as error:
            raise AssertionError(f"{shape}: {error.message[:400]}") from None


def _cancelling(numbers: range, chance: random.Random) -> pa.Table:
    """Rows whose sums are what the order makes of them."""
    doubles = (1e16, -1e16, 0.3, 0.1, 7.1, 5e-324, -0.0, None)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "k": pa.array([chance.choice(("x", "y", None)) for _ in numbers]),
            "d": pa.array([chance.choice(doubles) for _ in numbers], pa.float64()),
            "b": pa.array(
                [chance.choice((1, 3, 2**53 + 1, -(2**53) - 1, None)) for _ in numbers], pa.int64()
            ),
        }
    )


def test_deltas_of_sums_whose_terms_cancel_add_up(folder: Path, spark: SparkSession) -> None:
    """The whole way: `setup` and `verify` accept them, every csn is the first and the deltas up to it."""
    chance = random.Random(3)
    table = str(folder / "d" / "c")
    write_deltalake(table, _cancelling(range(40), chance))
    each = ", ".join(
        f"{name}({column}) AS {name}_{column}"
        for name in ("sum", "avg", "stddev", "skewness", "kurtosis", "covar_pop")
        for column in ("d", "b")
    )
    each = each.replace("covar_pop(d)", "covar_pop(d, b)").replace("covar_pop(b)", "covar_pop(b, id)")
    _write(
        folder,
        f"SELECT k, {each} FROM d.c GROUP BY k",
        f"SELECT count(DISTINCT k) AS n, {each} FROM d.c",
        "SELECT id, sum(d) OVER (PARTITION BY k ORDER BY b) AS s, stddev(b) OVER (PARTITION BY k) AS t"
        " FROM d.c",
        "SELECT sum_d, count(*) AS n FROM v0 GROUP BY sum_d",
    )
    with Project.open(folder, spark) as project:
        project.setup()
        stored: dict[tuple[str, int], Counter[tuple[Any, ...]]] = {}
        for step in range(2):
            write_deltalake(table, _cancelling(range(100 * step, 100 * step + 5), chance), mode="append")
            DeltaTable(table).delete(f"id % 7 = {step}")
            project.run(once=True)
            stored |= {
                (each.name, each.materialized): shown(project, each.name) for each in project.status().views
            }
        for view in project.status().views:
            states = states_of(project, view)
            for (name, csn), rows in stored.items():
                assert name != view.name or rows == states[csn], (name, csn)
            for csn in (view.oldest + 2, view.high_water - 1):
                assert shown(project, view.name, csn) == states[csn], (view.name, csn)
        assert [each.view for each in project.verify() if not each.is_right] == []


@pytest.mark.parametrize(
    ("stored", "answers", "is_right"),
    [
        ((0.0, Decimal(1)), [(0.3, Decimal(1)), (0.0, Decimal(1))], True),
        ((0.0, Decimal(1)), [(0.3, Decimal(1)), (0.3, Decimal(1))], False),
        ((0.3 + 1e-13, Decimal(1)), [(0.3, Decimal(1))], True),
        ((0.0, Decimal(2)), [(0.3, Decimal(1)), (0.0, Decimal(1))], False),
        ((0.3, Decimal(2)), [(0.3, Decimal(1)), (0.3, Decimal(2))], True),
        ((float("nan"), Decimal(1)), [(0.3, Decimal(1)), (float("nan"), Decimal(1))], True),
        ((float("nan"), Decimal(1)), [(0.3, Decimal(1)), (7.0, Decimal(1))], False),
        ((None, Decimal(1)), [(0.3, Decimal(1)), (None, Decimal(1))], True),
        ((None, Decimal(1)), [(0.3, Decimal(1)), (0.3, Decimal(1))], False),
        ((9.0, Decimal(1)), [(0.3, Decimal(1)), (0.4, Decimal(1))], False),
    ],
)
def test_a_number_may_differ_as_far_as_spark_from_itself(
    stored: tuple[Any, ...], answers: list[tuple[Any, ...]], is_right: bool
) -> None:
    spread = _Spread([1, 2], [[("k", *each)] for each in answers])
    found = [Difference(("k", *stored), 1, 0), Difference(("k", 0.3, Decimal(1)), 0, 1)]
    for rows in (found, found[::-1]):
        assert (_without_pairs(rows, [1, 2], spread.is_within) == []) == is_right


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
    with Project.open(folder, spark) as project, pytest.raises(SetupIncomplete) as caught:
        project.setup()
    assert not (folder / "lake").exists()
    error = caught.value.errors["v0"]
    assert isinstance(error, Misunderstood)
    first, head, *rows = error.message.splitlines()
    assert first.startswith("view v0 is understood differently from Spark, so that its rows could be wrong. ")
    assert first.count(". ") == 1 and first.endswith(":"), "two sentences"
    assert head.split() == ["rollview", "Spark", "f", "a"]
    assert 1 <= len(rows) <= 6 and all(row.split()[0] != row.split()[1] for row in rows[:5])
    assert "normal form" not in str(caught.value) and "Exchange" not in str(caught.value)
    assert "rollview's normal form:" in caught.value.details and "Spark's plan:" in caught.value.details


def test_a_view_that_is_understood_differently_stops_alone(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reads it stops as well. A view that was set up before stays as it was, and continues."""
    _write(folder, "SELECT f, max(id) AS a FROM d.t GROUP BY f", "SELECT id, k FROM d.t")
    with Project.open(folder, spark) as project:
        project.setup()
    monkeypatch.setattr(
        SumGroups, "_average", lambda self, _, argument, total, count: call("/", total, Column(ROWS))
    )
    wrong = "SELECT g, avg(id) AS a FROM d.t GROUP BY g"
    _write(folder, wrong, "SELECT id, h FROM d.t", wrong, "SELECT a FROM v2", "SELECT count(*) AS n FROM d.u")
    with Project.open(folder, spark) as project:
        with pytest.raises(SetupIncomplete) as caught:
            project.setup()
        assert set(caught.value.errors) == {"v0", "v2", "v3"}
        assert "reads v2" in caught.value.errors["v3"].message
        assert project.views == ("v0", "v1", "v4")
        assert project.read("v0").columns == ["f", "a"] and project.read("v1").columns == ["id", "h"]
        more = {name: values.slice(0, 2) for name, values in T.items()}
        write_deltalake(str(folder / "d" / "t"), pa.table(more), mode="append")
        project.run(once=True)
        assert [each.view for each in project.verify() if not each.is_right] == []


def test_the_rows_of_the_sources_are_tried_as_well(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the random rows show nothing; of large tables a sample must be enough."""
    monkeypatch.setattr("rollview.views.equivalence_check.check_all_by_invention", lambda *_: None)
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

    monkeypatch.setattr("rollview.maintain.load.check_meaning", count_and_check)
    with Project.open(folder, spark) as project:
        project.setup()
        assert [tuple(row) for row in project.read("v0").orderBy("v").collect()] == [(None, 0), (1, 2000)]
    assert len(tried) == 1 and 50 < tried[0] < 800
    # With a count of what is not stored: otherwise no row of the sources would be read.
    _write(folder, "SELECT m.v, count(n.id) AS c FROM d.m JOIN d.n ON m.id = n.id WHERE m.v = 1 GROUP BY m.v")
    above = Draft.above
    monkeypatch.setattr(Draft, "above", lambda draft, _, outputs: above(draft, (), outputs))
    with Project.open(folder, spark) as project:
        with pytest.raises(SetupIncomplete) as caught:
            project.setup()
        assert isinstance(caught.value.errors["v0"], Misunderstood)
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
