"""Answers without Spark: what is printed is, byte by byte, what is printed of Spark's own answer."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from io import StringIO
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from shop import MORE_VIEWS, VIEWS, Shop, transact

from rollview.algebra.bag import COUNT
from rollview.algebra.history import CSN
from rollview.answer.answers import page_of, sorted_rows
from rollview.answer.requests import DeltasRequest, Page, QueryPlanRequest, QueryRequest, ReadRequest
from rollview.cli.answers import print_page, shown_page
from rollview.cli.terminal import plain
from rollview.project.project import Project
from rollview.rows import spark_type

pytestmark = pytest.mark.slow

RICH = pa.schema(
    [
        ("id", pa.int64()),
        ("flag", pa.bool_()),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("whole", pa.int32()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("price", pa.decimal128(15, 2)),
        ("wide", pa.decimal128(38, 10)),
        ("word", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("town", pa.string()), ("at", pa.list_(pa.float64()))])),
    ]
)
DAY, AT = date(1582, 10, 4), datetime(2026, 3, 29, 1, 30, 0, 123456)
ROWS: list[tuple[Any, ...]] = [
    (
        1,
        True,
        -128,
        32767,
        -(2**31),
        1.5,
        math.nan,
        Decimal("0.10"),
        Decimal("1E-10"),
        "é\x07\n",
        b"\x00\xff",
    ),
    (2, None, None, None, None, None, None, None, None, None, None),
    (3, False, 127, 0, 7, math.inf, -math.inf, Decimal("-1.00"), Decimal(10**27), "[b]x[/b]", b""),
    (4, False, 0, 0, 0, 0.1, 1e16, Decimal("99"), Decimal(0), "😀", b"\x80"),
    (5, True, 0, 0, 0, 0.0, 1e-7, Decimal("99.9"), Decimal("-0.5"), "", b"\x7f"),
]
NESTED: list[tuple[Any, ...]] = [
    (DAY, AT.replace(tzinfo=UTC), AT, ["b", None], {"town": "u", "at": [1.0, math.nan]}),
    (None, None, None, None, None),
    (
        date(9999, 12, 31),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59),
        [],
        {"town": None, "at": None},
    ),
    (DAY, AT.replace(tzinfo=UTC), AT, ["b"], {"town": "u", "at": []}),
    (DAY, AT.replace(tzinfo=UTC), AT, ["a", "z"], {"town": "t", "at": [2.0]}),
]
RICH_VIEWS = {
    "everything": "SELECT * FROM d.rich",
    "alike": "SELECT day, local, tags, place, price, double FROM d.rich",
    "by_flag": """SELECT flag, count(*) AS n, sum(price) AS total, avg(price) AS mean, avg(tiny) AS small
        FROM d.rich GROUP BY flag""",
    "kinds": "SELECT DISTINCT flag, day FROM d.rich",
}


def _rows(*places: int) -> pa.Table:
    values = [dict(zip(RICH.names, ROWS[place] + NESTED[place], strict=True)) for place in places]
    return pa.Table.from_pylist(values, RICH)


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Project]:
    """A table with a column of every type, and what happened to it."""
    folder = tmp_path_factory.mktemp("rich")
    write_deltalake(folder / "d/rich", _rows(0, 1, 3))
    (folder / "rollview.yml").write_text("lake: ./lake\nsources:\n  d: {type: delta, path: ./d}\n")
    (folder / "views").mkdir()
    for name, sql in RICH_VIEWS.items():
        (folder / "views" / f"{name}.sql").write_text(sql)
    with Project.open(folder, spark) as project:
        project.setup()
        write_deltalake(folder / "d/rich", _rows(2, 4, 4), mode="append")
        project.capture()
        DeltaTable(folder / "d/rich").delete("id = 1")
        project.run(once=True)
        yield project


@pytest.fixture(scope="module")
def small_shop(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Project]:
    """Joins, sums, averages, views over views."""
    shop = Shop(tmp_path_factory.mktemp("quick") / "shop", {**VIEWS, **MORE_VIEWS})
    transact(shop, 15)
    with Project.open(shop.folder, spark) as project:
        project.setup()
        for _ in range(3):
            transact(shop, 3)
            project.run(once=True)
        yield project
    shop.close()


def _printed(page: Page, width: int = 300) -> str:
    shown, stream = shown_page(page), StringIO()
    print_page(Console(file=stream, width=width, highlight=False), shown)
    return f"{stream.getvalue()}{json.dumps(plain(shown.records()))}{shown.columns}{shown.total}"


def _by_spark(project: Project, request: ReadRequest | DeltasRequest) -> Page:
    """What Spark says, sorted and cut by it."""
    if isinstance(request, ReadRequest):
        return page_of(project.read(request.view, request.as_of), request.limit)
    frame = project.deltas(request.view, request.start, request.to)
    return page_of(frame, request.limit, first=(CSN, COUNT))


def _check_all(project: Project, not_quick: tuple[str, ...] = ()) -> None:
    for view in project.status().views:
        middle = f"csn:{(view.oldest + view.high_water) // 2}"
        requests = [
            *(
                ReadRequest(view.name, point, limit)
                for point in (None, "csn:0", middle)
                for limit in (None, 2)
            ),
            *(
                DeltasRequest(view.name, start, "latest", limit)
                for start in (None, middle)
                for limit in (None, 1)
            ),
        ]
        for request in requests:
            quick = project.answer_without_spark(request)
            if quick is None:
                assert view.name in not_quick, request
                quick = project.answer(request)
            assert quick.page is not None
            assert _printed(quick.page) == _printed(_by_spark(project, request)), request


def test_differential_every_type(rich: Project) -> None:
    """Times are shown in the zone of who reads, whoever has sorted them."""
    _check_all(rich, not_quick=("everything", "alike"))


def test_differential_views_over_views(small_shop: Project) -> None:
    _check_all(small_shop)


def test_a_column_of_every_type_is_read_without_spark(rich: Project) -> None:
    for view in ("everything", "alike"):
        assert rich.answer_without_spark(ReadRequest(view)) is not None
    assert {spark_type(field.type).partition("<")[0].partition("(")[0] for field in RICH} == {
        *("bigint", "boolean", "tinyint", "smallint", "int", "float", "double", "decimal"),
        *("string", "binary", "date", "timestamp", "timestamp_ntz", "array", "struct"),
    }  # fmt: skip


def test_a_query_is_never_begun_without_spark(small_shop: Project) -> None:
    """It might refresh something first, in vain."""
    before = small_shop.status().last_csn
    assert small_shop.answer_without_spark(QueryRequest("SELECT 1 FROM sold", max_staleness=0.0)) is None
    assert small_shop.status().last_csn == before
    plan = small_shop.answer_without_spark(QueryPlanRequest("SELECT n FROM sales_by_state", rewrite=False))
    assert plan is not None
    assert plan.facts["inputs"][0]["name"] == "sales_by_state"


VALUES = st.fixed_dictionaries(
    {
        "f": st.none() | st.floats(width=64).filter(lambda x: x != 0 or math.copysign(1, x) > 0),
        "s": st.none() | st.text(max_size=3),
        "a": st.none() | st.lists(st.none() | st.integers(-2, 2), max_size=3),
        "t": st.none()
        | st.fixed_dictionaries({"x": st.none() | st.floats(0, 1), "y": st.none() | st.binary(max_size=2)}),
    }
)
SORTED = pa.schema(
    [
        ("f", pa.float64()),
        ("s", pa.string()),
        ("a", pa.list_(pa.int64())),
        ("t", pa.struct([("x", pa.float64()), ("y", pa.binary())])),
    ]
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(VALUES, max_size=12), turn=st.integers(0, 3))
def test_differential_rows_are_sorted_as_spark_sorts_them(
    spark: SparkSession, rows: list[dict[str, Any]], turn: int
) -> None:
    names = SORTED.names[turn:] + SORTED.names[:turn]
    table = pa.Table.from_pylist(rows, SORTED).select(names)
    frame: DataFrame = spark.createDataFrame(table)
    assert repr(sorted_rows(table).to_pylist()) == repr(frame.orderBy(*names).toArrow().to_pylist())


def test_reading_does_not_load_spark(small_shop: Project) -> None:
    """Importing PySpark alone would take longer than the answer."""
    code = f"""
import sys
from rollview.project.project import Project
from rollview.answer.requests import DeltasRequest, ReadRequest
with Project.open({str(small_shop._warehouse.project.path)!r}) as project:
    project.status()
    for request in (ReadRequest("sales_by_state", "csn:1"), DeltasRequest("kinds_in_big_states")):
        assert project.answer_without_spark(request) is not None, request
print([name for name in sys.modules if name.partition(".")[0] in ("pyspark", "py4j")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", ""), done.stderr


UNUSED = (
    *(
        "pandas",
        "py4j",
        "pyspark",
        "prometheus_client",
        "psycopg",
        "pymysql",
        "starlette",
        "jinja2",
        "obstore",
    ),
    *("rollview.lab", "rollview.monitoring", "rollview.run", "rollview.setup", "rollview.web"),
    *("rollview.maintain.capture", "rollview.maintain.propagate", "rollview.upkeep.verify"),
)


@pytest.mark.parametrize(
    "words", [["status"], ["read", "sold", "--as-of", "csn:1"], ["explain", "sold"]], ids=" ".join
)
def test_a_command_alone_loads_what_it_uses(small_shop: Project, words: list[str]) -> None:
    """Nothing of what maintains views, of the page, or of drivers that the project's sources do not need."""
    code = f"""
import sys
from rollview.cli import main
main(sys.argv[1:], standalone_mode=False)
print([each for each in {UNUSED} if each in sys.modules], file=sys.stderr)
"""
    own = [*words, "--project", str(small_shop._warehouse.project.path)]
    done = subprocess.run([sys.executable, "-c", code, *own], capture_output=True, text=True, check=False)
    assert done.stderr == "[]\n"
