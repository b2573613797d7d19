"""Bad input: exit code 2, the place, the reason, a hint; nothing is changed, and nobody waits for Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_runs import Command, tree

from rollview.sources.postgres import EmbeddedPostgres

WITH_PROPERTY = "CREATE MATERIALIZED VIEW v TBLPROPERTIES ('{}' = '{}') AS SELECT amount FROM shop.sales"
NEEDS_A_PROJECT = [
    ["setup"], ["setup", "--dry-run"], ["setup", "--remove"], ["run", "--once"], ["capture"],
    ["propagate", "v"], ["apply", "v"], ["refresh", "v"], ["status"], ["read", "v"], ["deltas", "v"],
    ["query", "SELECT 1 FROM v"], ["explain", "v"], ["verify"],
    ["condense", "v", "--from", "csn:1", "--to", "csn:2"], ["release", "g"],
]  # fmt: skip
NEEDS_A_SETUP = [each for each in NEEDS_A_PROJECT if each[0] not in ("setup", "explain")]


@pytest.fixture
def shop(tmp_path: Path, rollview: Command, monkeypatch: pytest.MonkeyPatch, no_java: None) -> Path:
    """The project of `rollview init`, not set up, and no Java to start Spark with."""
    monkeypatch.chdir(tmp_path)
    assert rollview("init", "shop", "--sqlite").exit_code == 0
    monkeypatch.chdir(tmp_path / "shop")
    return tmp_path / "shop"


@pytest.mark.parametrize("arguments", NEEDS_A_PROJECT, ids=" ".join)
def test_no_project(
    arguments: list[str], tmp_path: Path, rollview: Command, monkeypatch: pytest.MonkeyPatch, no_java: None
) -> None:
    monkeypatch.chdir(tmp_path)
    result = rollview(*arguments)
    assert result.exit_code == 2, result.output
    assert "cannot read" in result.stderr
    assert "hint: `rollview init DIR` writes a small working project" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", NEEDS_A_SETUP, ids=" ".join)
def test_a_project_that_was_never_set_up(arguments: list[str], shop: Path, rollview: Command) -> None:
    before = tree(shop)
    result = rollview(*arguments)
    assert result.exit_code == 2, result.output
    assert "project shop: no view is set up" in result.stderr
    assert "hint: run `rollview setup` first" in result.stderr
    assert tree(shop) == before


_SPARK = """
# Where Spark runs: local threads here; {remote: "sc://host:15002"} for a Spark Connect server.
spark: {master: "local[*]"}"""


@pytest.mark.parametrize(
    ("old", "new", "place", "reason", "hint"),
    [
        ("name: shop", "name: [shop", "rollview.yml", "line", ""),
        ("lake: ./lake", "lakes: ./lake", "rollview.yml (line 5)", "unknown setting `lakes`",
         "did you mean `lake`?"),
        ("lake: ./lake", "lake: gs://bucket/lake", "rollview.yml (line 5)",
         "`lake` must be a folder or s3://BUCKET/PREFIX; `gs://bucket/lake` is not", "for example ./lake"),
        ("lake: ./lake", "lake: S3:/bucket", "rollview.yml (line 5)", "`S3:/bucket` is not", "./lake"),
        ("lake: ./lake", "lake: s3://bucket/a b", "rollview.yml (line 5)", "`s3://bucket/a b` is not", ""),
        ("lake: ./lake", "lake: s3://bucket/lake", "rollview.yml (line 5)", "`catalog` is missing",
         "catalog: sqlite:///./catalog.db"),
        (f"lake: ./lake\n{_SPARK}", "lake: s3://bucket/c\ncatalog: sqlite:///./c.db\nspark: {remote: 'sc://h'}",
         "rollview.yml", "needs Spark on this machine", "local[*]"),
        ("lake: ./lake", "lake: ./lake\nname: market", "rollview.yml", "`name` is set twice (line 6", ""),
        ("crm: {type: sqlite", "crm: {path: a.db, type: sqlite", "rollview.yml", "`path` is set twice", ""),
        ("lake: ./lake", "storage: {region: r}", "rollview.yml (line 5)", "is in a folder", ""),
        ("lake: ./lake", "lake: s3://bucket/c\nstorage: {key: k}\ncatalog: sqlite:///./c.db",
         "rollview.yml", "unknown setting of storage: `key`", "known: access_key_id"),
        ("type: sqlite, path: ./crm.db", "type: delta, path: 'abfss://c@a/tables'", "source `crm`",
         "abfss: is not supported", "name a local path"),
        ("type: sqlite, path: ./crm.db", "type: files, path: 'file:///dumps'", "source `crm`",
         "file: is not supported", "name a local path"),
        ("type: sqlite, path: ./crm.db", "type: delta, path: 's3://u:secret@bucket/a'", "source `crm`",
         "this address is not supported", "s3://data/shop"),
        ("type: sqlite, path: ./crm.db", "type: delta, path: 's3://bucket/../a'", "source `crm`",
         "this address is not supported", "s3://data/shop"),
        ("lake: ./lake", "lake: s3://bucket/a//b", "rollview.yml (line 5)", "`s3://bucket/a//b` is not", ""),
        ("type: sqlite, path: ./crm.db", "type: sqlite, path: 's3://bucket/crm.db'", "source `crm`",
         "s3: is not supported", "name a local path"),
        ("type: sqlite, path: ./crm.db", "type: files, path: 'gs://bucket/dumps'", "source `crm`",
         "gs: is not supported", "s3://data/shop"),
        ("type: sqlite, path: ./crm.db", "type: delta, path: ., region: r", "source crm",
         "region is for a path at s3://BUCKET/PREFIX", "remove region"),
        ("type: sqlite, path: ./crm.db", "type: delta, path: 's3://bucket/a', regio: r", "source crm",
         "no option regio", ""),
        ("lake: ./lake", "global_transactions: 5m", "rollview.yml (line 5)",
         "`global_transactions` must be a mapping", "{give_up_after: 5m}"),
        ("lake: ./lake", "global_transactions: {give_up_after: soon}", "rollview.yml (line 5)",
         "'soon' is not a valid duration", "for example 500ms, 90s"),
        ("lake: ./lake", "global_transactions: {give_up: 5m}", "rollview.yml (line 5)",
         "unknown setting of global_transactions: `give_up`", "did you mean `give_up_after`?"),
        ("type: sqlite, path: ./crm", "type: sqlight, path: ./crm", "source `crm`", "unknown type `sqlight`",
         "did you mean `sqlite`?"),
        ("type: sqlite, path: ./crm", "type: oracle, path: ./crm", "source `crm`", "unknown type `oracle`",
         "known types: sqlite"),
        ("{type: sqlite, path: ./crm.db}", "{path: ./crm.db}", "rollview.yml", "source `crm` has no `type`",
         "for example {type: sqlite"),
        ("{type: sqlite, path: ./crm.db}", "{type: sqlite}", "source `crm`", "has no `path`",
         "where its data is"),
        ("./crm.db", "./nowhere.db", "nowhere.db", "there is no SQLite database at", "check `path`"),
        ("./crm.db}", "\"${NO_SUCH_VARIABLE}\"}", "rollview.yml", "no variable NO_SUCH_VARIABLE", ""),
        ("views/*.sql", "views/nothing.sql", "views", "views/nothing.sql does not exist", ""),
        ("views/*.sql", "a/**.sql", "rollview.yml", "`a/**.sql` is not a file pattern", "views/*.sql"),
        ("views/*.sql", "", "rollview.yml", "`` is not a file pattern", "views/*.sql"),
        ("name: shop", "name: " + "[" * 5000, "rollview.yml", "nested too deeply", ""),
        ("crm: {type: sqlite, path: ./crm.db}", "crm: {type: postgres, dsn: 'postgresql://u:p@h:99999/d'}",
         "source crm", "port", ""),
        ("crm: {type: sqlite, path: ./crm.db}", "crm: {type: postgres, dsn: 'postgresql://u:p@h:x²/d'}",
         "source crm", "port", ""),
        ("crm: {type: sqlite, path: ./crm.db}", "crm: {type: mariadb, dsn: 'mariadb://u:p@h:99999/d'}",
         "source crm", "its dsn is not a valid address", ""),
    ],
)  # fmt: skip
def test_a_wrong_project_file(
    old: str, new: str, place: str, reason: str, hint: str, shop: Path, rollview: Command
) -> None:
    file = shop / "rollview.yml"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
    before = tree(shop)
    result = rollview("setup")
    assert result.exit_code == 2, result.output
    for words in (place, reason, hint):
        assert words in result.stderr
    assert tree(shop) == before


@pytest.mark.parametrize("spark", ["master: 'spark://h:7077'", "remote: 'sc://h'"])
def test_a_source_in_a_bucket_and_spark_elsewhere(spark: str, shop: Path, rollview: Command) -> None:
    file = shop / "rollview.yml"
    text = file.read_text(encoding="utf-8").replace('master: "local[*]"', spark)
    file.write_text(text.replace("type: sqlite, path: ./crm.db", "type: delta, path: 's3://bucket/a'"))
    result = rollview("setup")
    assert result.exit_code == 2, result.output
    assert "`crm` is on object storage, which needs Spark on this machine" in result.stderr
    assert 'write spark: {master: "local[*]"}' in result.stderr


@pytest.mark.parametrize(
    ("sql", "place", "reason"),
    [
        ("SELECT x.a FROM shop.nothing x", "only.sql", "shop.nothing"),
        ("SELECT s.price FROM shop.sales s", "only.sql", "price"),
        ("SELECT a FROM only", "only.sql", "cycle: only → only"),
        ("SELECT FROM WHERE", "only.sql", "line 1"),
        (f"SELECT {'(' * 5000}1{')' * 5000} AS x FROM shop.sales", "only.sql", "nested too deeply"),
        (f"SELECT {'NOT ' * 5000} TRUE AS x FROM shop.sales", "only.sql", "nested too deeply"),
        ("CREATE MATERIALIZED VIEW `../x` AS SELECT 1 AS a FROM shop.sales", "only.sql", "cannot name a"),
        ("CREATE MATERIALIZED VIEW `.` AS SELECT 1 AS a FROM shop.sales", "only.sql", "cannot name a view"),
        ("CREATE MATERIALIZED VIEW `a$1` AS SELECT 1 AS a FROM shop.sales", "only.sql", "has a $"),
        ("SELECT amount FROM shop.sales TABLESAMPLE (5 ROWS)", "only.sql", "TABLESAMPLE"),
        (WITH_PROPERTY.format("rollview.policy", "weekly"), "only.sql", "`weekly`"),
        (WITH_PROPERTY.format("rollview.polcy", "deferred"), "only.sql", "rollview.polcy"),
        (WITH_PROPERTY.format("rollview.consistency", "mostly"), "only.sql", "`mostly`"),
        (WITH_PROPERTY.format("rollview.consistency", "Complete "), "only.sql", "`Complete `"),
    ],
)  # fmt: skip
def test_a_wrong_view(sql: str, place: str, reason: str, shop: Path, rollview: Command) -> None:
    for file in (shop / "views").iterdir():
        file.unlink()
    (shop / "views" / "only.sql").write_text(sql, encoding="utf-8")
    before = tree(shop)
    result = rollview("setup")
    assert result.exit_code == 2, result.output
    assert place in result.stderr
    assert reason in result.stderr
    assert tree(shop) == before


def test_files_that_are_no_text(shop: Path, rollview: Command) -> None:
    for file in (shop / "views").iterdir():
        file.unlink()
    (shop / "views" / "only.sql").write_bytes(b"SELECT 1\nFROM \xff\xfe")
    result = rollview("setup")
    assert result.exit_code == 2, result.output
    assert "only.sql is not UTF-8 (line 2)" in result.stderr
    (shop / "views" / "only.sql").unlink()
    text = (shop / "rollview.yml").read_bytes()
    (shop / "rollview.yml").write_bytes(text + b"# \xe9\n")
    result = rollview("setup")
    assert result.exit_code == 2, result.output
    assert "rollview.yml is not UTF-8 (line " in result.stderr
    # A byte order mark and other ends of lines are what some editors write.
    (shop / "rollview.yml").write_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"))
    (shop / "views" / "only.sql").write_bytes(b"\xef\xbb\xbfSELECT nothing FROM shop.sales")
    result = rollview("setup")
    assert "only.sql: unknown column `nothing`" in result.stderr


def test_names_that_differ_only_in_case(shop: Path, rollview: Command) -> None:
    (shop / "views" / "x.sql").write_text(
        "CREATE MATERIALIZED VIEW Sale_LINES AS SELECT amount FROM shop.sales"
    )
    result = rollview("setup")
    assert result.exit_code == 2, result.output
    assert "is already defined in" in result.stderr and "differ only in case" in result.stderr


def test_views_in_a_cycle(shop: Path, rollview: Command) -> None:
    for name, reads in {"one": "two", "two": "three", "three": "one"}.items():
        (shop / "views" / f"{name}.sql").write_text(f"SELECT a FROM {reads}", encoding="utf-8")
    before = tree(shop)
    result = rollview("setup", "--json")
    assert result.exit_code == 2
    assert result.stdout == ""
    reported = json.loads(result.stderr)
    assert set(reported) == {"error", "subject", "hint"}
    assert "one → two → three → one" in reported["error"]
    assert reported["hint"] == "a view cannot read itself, not even through others"
    assert tree(shop) == before


def test_all_mistakes_are_reported_together(shop: Path, rollview: Command) -> None:
    """Each with its file and line; views that read a wrong one are not called wrong."""
    texts = {
        "comma": "SELECT amount,\nsale_id,\nFROM shop.sales",
        "column": "SELECT s.sale_id,\n  s.price\nFROM shop.sales s",
        "twice": "CREATE MATERIALIZED VIEW Sale_LINES AS SELECT amount FROM shop.sales",
        "reader": "SELECT x FROM called_otherwise",
        "reader_of_reader": "SELECT x FROM reader",
        "other_name": "CREATE MATERIALIZED VIEW called_otherwise AS SELECT 'x FROM shop.sales",
        "one": "SELECT a FROM two",
        "two": "SELECT a FROM one",
        "policy": WITH_PROPERTY.format("rollview.polcy", "deferred"),
    }
    for name, text in texts.items():
        (shop / "views" / f"{name}.sql").write_text(text, encoding="utf-8")
    (shop / "views" / "bytes.sql").write_bytes(b"SELECT 1\nFROM \xff")
    before = tree(shop)
    result = rollview("setup")
    assert result.exit_code == 2, result.output
    for words in (
        "7 mistakes in views/bytes.sql:2, views/comma.sql:2,",
        "  views/comma.sql:2: nothing follows the comma (line 2, column 8)\n",
        "  views/column.sql:2: unknown column `price`",
        "    hint: names that differ only in case are the same",
        "  views/one.sql: views form a cycle: one → two → one\n",
    ):
        assert words in result.stderr
    assert "reader" not in result.stderr
    reported = json.loads(rollview("setup", "--json").stderr)
    assert "\n" not in reported["error"]
    places = {each["file"]: each["line"] for each in reported["mistakes"]}
    assert places == {
        "views/bytes.sql": 2, "views/comma.sql": 2, "views/column.sql": 2, "views/twice.sql": 0,
        "views/other_name.sql": 1, "views/one.sql": 0, "views/policy.sql": 1,
    }  # fmt: skip
    assert all(set(each) == {"file", "line", "error", "subject", "hint"} for each in reported["mistakes"])
    assert tree(shop) == before
    for name in texts:
        (shop / "views" / f"{name}.sql").unlink()
    alone = json.loads(rollview("setup", "--json").stderr)
    assert set(alone) == {"error", "subject", "hint"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["read"], "Missing argument 'VIEW'"),
        (["read", "v", "--limit", "-1"], "-1 is not in the range"),
        (
            ["query", "SELECT 1", "--max-staleness", "soon"],
            "'soon' is not a valid duration; for example 500ms, 90s",
        ),
        (["condense", "v", "--from", "csn:1"], "Missing option '--to'"),
        (["setup", "--remove", "--reload", "all"], "--remove and --reload contradict each other"),
        (["setup", "--remove", "--dry-run"], "--remove and --dry-run contradict each other"),
        (["setup", "--schema", "crm.main", "--dry-run"], "--schema and --dry-run contradict each other"),
        (["setup", "--schema", "crm.main"], "--schema needs --statements"),
        (["setup", "--schema", "crm.main", "--statements", "x.sql"], "source crm has no schemas"),
        (["setup", "--schema", "main", "--statements", "x.sql"], "`main` is not a schema of a source"),
        (["propagate", "v", "--follow", "--to", "csn:1"], "--follow never ends"),
        (["apply", "v", "--follow", "--to", "csn:1"], "--follow never ends"),
        (["demo", "--anomaly", "--keep"], "--anomaly writes nothing"),
        (["run", "--twice"], "No such option"),
    ],
)
def test_wrong_arguments(arguments: list[str], message: str, shop: Path, rollview: Command) -> None:
    before = tree(shop)
    result = rollview(*arguments)
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert tree(shop) == before


def test_init_refuses_what_is_not_empty(shop: Path, rollview: Command) -> None:
    before = tree(shop)
    for folder, reason in (
        (".", ". is not empty"),
        ("rollview.yml", "is a file"),
        ("sell.py/x", "is a file"),
    ):
        result = rollview("init", folder)
        assert result.exit_code == 2, result.output
        assert reason in result.stderr
        assert "hint: name a folder that is empty" in result.stderr
    assert tree(shop) == before
    (shop / "empty").mkdir()
    assert rollview("init", "empty").exit_code == 0
    EmbeddedPostgres(shop / "empty" / "crm").remove()


def test_no_java(shop: Path, rollview: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree(shop)
    result = rollview("setup")
    assert result.exit_code == 1
    assert "JAVA_HOME is /no/such/java, where there is no bin/java" in result.stderr
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "/no/such/folder")
    result = rollview("setup")
    assert result.exit_code == 1
    assert "Spark needs Java, and there is none" in result.stderr
    assert "hint: install Java 17 or 21" in result.stderr
    assert tree(shop) == before
