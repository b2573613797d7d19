"""A temporary view becomes a WITH of the views that read it; files of several statements."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from rollview.algebra.relation import Table
from rollview.errors import InputError, UnsupportedError, ViewError
from rollview.planning import parse_view, referenced_names, render, with_temporary_views
from rollview.sql.text.statements import check_no_streams, statements_of
from rollview.views.mistakes import Mistakes
from rollview.views.view_files import read_view_files

TABLES = (Table("crm", "visit", ("cust_id", "day")), Table("", "daily", ("day", "n"), own_log=True))
TEMPORARY = {
    "days": "CREATE TEMPORARY VIEW Days (d COMMENT 'x', `who is`) COMMENT 'y' AS\n"
    "-- it's a comment; /* not this */\nSELECT day, /* ; */ cust_id FROM crm.visit;",
    "late": "CREATE OR REPLACE TEMP VIEW late AS\nSELECT * FROM days WHERE d > 7",
    "own": "CREATE TEMPORARY VIEW own AS WITH a AS (SELECT 'a\nb' AS t, n FROM daily) SELECT * FROM a",
    "loop": "CREATE TEMPORARY VIEW loop AS SELECT * FROM pool",
    "pool": "CREATE TEMPORARY VIEW pool AS SELECT * FROM loop",
}
DAYS = "`Days`(`d`, `who is`) AS (SELECT day,   cust_id FROM crm.visit)"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT day FROM crm.visit", "SELECT day FROM crm.visit"),
        ("SELECT d\nFROM DAYS", f"WITH {DAYS} SELECT d\nFROM DAYS"),
        (
            "CREATE MATERIALIZED VIEW v COMMENT 'days AS'\nAS -- c\n(SELECT d FROM late) UNION "
            "SELECT d FROM days",
            f"CREATE MATERIALIZED VIEW v COMMENT 'days AS'\nAS -- c\nWITH {DAYS}, "
            "`late` AS (SELECT * FROM days WHERE d > 7) (SELECT d FROM late) UNION SELECT d FROM days",
        ),
        (
            "with q AS (SELECT * FROM days) SELECT d FROM q",
            f"with {DAYS}, q AS (SELECT * FROM days) SELECT d FROM q",
        ),
        (
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) "
            "SELECT n FROM r, days",
            f"WITH RECURSIVE {DAYS}, r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) "
            "SELECT n FROM r, days",
        ),
        # A name that a WITH of the view gives is not the temporary view.
        (
            "WITH days AS (SELECT 1 AS d) SELECT d FROM days",
            "WITH days AS (SELECT 1 AS d) SELECT d FROM days",
        ),
        (
            "SELECT t FROM own",
            "WITH `own` AS (WITH a AS (SELECT 'a\nb' AS t, n FROM daily) SELECT * FROM a) SELECT t FROM own",
        ),
    ],
)
def test_what_a_view_needs_is_in_its_with(sql: str, expected: str) -> None:
    written = with_temporary_views(sql, TEMPORARY)
    assert written == expected
    assert not {"days", "late", "own"} & {name.lower() for name in referenced_names(written)}


def test_the_query_is_what_it_would_be_with_the_query_written_out() -> None:
    text = with_temporary_views("SELECT a.`who is` FROM late a JOIN days b ON a.d = b.d", TEMPORARY)
    plain = """SELECT a.`who is` FROM (SELECT day AS d, cust_id AS `who is` FROM crm.visit WHERE day > 7) a
        JOIN (SELECT day AS d FROM crm.visit) b ON a.d = b.d"""
    assert render(parse_view(text, TABLES)) == render(parse_view(plain, TABLES))


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT * FROM loop", "views form a cycle: loop → pool → loop"),
        ("WITH daily AS (SELECT 1 AS n) SELECT * FROM own, daily", "`daily` is a WITH of this view"),
        ("SELECT * FROM days, (WITH days AS (SELECT 1) SELECT * FROM days)", "`days` is a WITH of this view"),
    ],
)
def test_names_that_would_mean_something_else(sql: str, reason: str) -> None:
    with pytest.raises(ViewError, match=reason):
        with_temporary_views(sql, TEMPORARY)


@pytest.mark.parametrize(
    "sql", ["SELECT 1", " SELECT 1 ; -- c;\n/* ; */", "SELECT ';' AS `;`;", ";", "SELECT 'x"]
)
def test_one_statement_stays_as_it_is(sql: str) -> None:
    assert statements_of(sql) == (sql,)


def test_statements_keep_their_places() -> None:
    sql = "-- one;\nSELECT ';' AS a;;\n\n SELECT\n\tb /* ; */ ; -- end"
    first, second = statements_of(sql)
    assert first == "-- one;\nSELECT ';' AS a"
    assert second.strip() == "SELECT\n\tb /* ; */"
    assert second.index("b") == sql.index("b /*") and second.count("\n") == 4


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a, stream b FROM s.t",
        "SELECT a FROM s.t ORDER BY a, stream DESC",
        "SELECT a IS DISTINCT FROM stream AND b FROM s.t",
        "SELECT substring(a FROM stream FOR 2), b FROM s.t JOIN stream ON stream.a = t.a",
        "SELECT 1 AS x FROM stream, s.t WHERE stream IS NULL",
        "SELECT 1 AS x FROM `stream` t, stream AS u",
    ],
)
def test_other_things_may_be_called_stream(sql: str) -> None:
    check_no_streams(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a FROM s.t, stream s.u",
        "SELECT a FROM s.t WHERE a IN (SELECT b FROM STREAM `u`)",
        "SELECT * FROM s.t LEFT JOIN STREAM(u) ON a = b",
        "FROM stream t SELECT *",
    ],
)
def test_streams_are_found_wherever_they_are(sql: str) -> None:
    with pytest.raises(UnsupportedError, match="STREAM is not supported yet"):
        check_no_streams(sql)


def read(folder: Path, files: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The views of files, and the mistakes in them."""
    paths = []
    for name, text in files.items():
        paths.append(folder / name)
        paths[-1].write_text(text, encoding="utf-8")
    mistakes = Mistakes(folder)
    texts = read_view_files(paths, mistakes)
    return {name: text.sql for name, text in texts.items()}, [str(error) for error in mistakes.found]


def test_files_of_several_statements(tmp_path: Path) -> None:
    views, mistakes = read(
        tmp_path,
        {
            "a.sql": "CREATE MATERIALIZED VIEW two AS SELECT d FROM days, one;\n"
            "CREATE MATERIALIZED VIEW one AS SELECT day FROM crm.visit;\n-- the end\n",
            "b.sql": TEMPORARY["days"],
            "c.sql": "SELECT * FROM one",
        },
    )
    assert not mistakes
    assert list(views) == ["one", "two", "c"]
    assert views["two"].startswith(f"CREATE MATERIALIZED VIEW two AS WITH {DAYS} SELECT d")


def test_a_mistake_in_one_statement_is_reported_with_its_line_and_leaves_the_others(tmp_path: Path) -> None:
    views, mistakes = read(
        tmp_path,
        {
            "a.sql": "CREATE MATERIALIZED VIEW one AS SELECT day FROM crm.visit;\n\n"
            "CREATE MATERIALIZED VIEW two AS\n SELECT day FROM STREAM crm.visit;\n"
            "SELECT day FROM crm.visit;\nSET a = b;\nCREATE TEMP VIEW ONE AS SELECT 1 AS a;",
        },
    )
    assert list(views) == ["one"]
    assert [each.split("\n")[0] for each in mistakes] == [
        "a.sql: STREAM is not supported yet (line 4, column 18)",
        "a.sql: a query in a file with several statements has no name",
        "a.sql: this is not a view definition (line 6, column 5)",
        "a.sql: view `ONE` is already defined in a.sql",
    ]


def test_a_broken_temporary_view_is_the_only_mistake(tmp_path: Path) -> None:
    """Views that read it are not called wrong."""
    mistakes = Mistakes(tmp_path)
    path = tmp_path / "a.sql"
    path.write_text("CREATE TEMP VIEW t AS SELECT FROM WHERE;\nCREATE MATERIALIZED VIEW v AS SELECT a FROM t")
    views = read_view_files([path], mistakes)
    assert len(mistakes.found) == 1 and mistakes.concern(views["v"].reads)
    with pytest.raises(InputError, match="line 1"):
        mistakes.check()
