"""A project from init to removal, as a user types it, with one Spark session; SQLite itself is the oracle."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from command_runs import tree
from commands_page import examples

from rollview.cli import main
from rollview.cli.main import COMMANDS
from rollview.demo.starter_project import NEXT_COMMANDS
from rollview.project.project import Project
from rollview.sources.postgres import EmbeddedPostgres
from rollview.sources.source import SetupResult, Table
from rollview.sources.sqlite import SQLiteSource

pytestmark = pytest.mark.slow
TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
Typed = Callable[..., Result]


@pytest.fixture
def typed(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Typed]:
    """Types a line in the current folder, and sees that its exit code is as expected."""
    monkeypatch.chdir(tmp_path)

    def run(line: str, code: int = 0) -> Result:
        words = shlex.split(line, comments=True)
        if words[0] == "cd":
            monkeypatch.chdir(words[1])
            return Result(CliRunner(), b"", b"", b"", None, 0, None)
        if words[0] == "python3":
            subprocess.run([sys.executable, *words[1:]], check=True, capture_output=True)
            return Result(CliRunner(), b"", b"", b"", None, 0, None)
        assert words[0] == "rollview", line
        result = CliRunner().invoke(main, words[1:], obj=spark)
        assert result.exit_code == code, f"{line}\n{result.output}\n{result.exception!r}"
        return result

    yield run
    for folder in tmp_path.glob("*/crm"):
        EmbeddedPostgres(folder).remove()


@pytest.fixture
def shop(typed: Typed) -> Iterator[Path]:
    """The project of `rollview init`, set up; the current folder."""
    typed("rollview init shop --sqlite")
    typed("cd shop")
    typed("rollview setup")
    yield Path.cwd()


def record(result: Result) -> Any:
    """The one JSON document on stdout."""
    return json.loads(result.stdout)


def by_state() -> dict[str, tuple[int, str]]:
    """What sales_by_state must show now, by SQLite's own reckoning, in cents to be exact."""
    with closing(sqlite3.connect("shop.db")) as database:
        database.execute("ATTACH 'crm.db' AS crm")
        rows = database.execute(
            "SELECT state, count(*), sum(CAST(round(amount * 100) AS INTEGER))"
            " FROM sales JOIN crm.customers USING (customer_id) GROUP BY state"
        ).fetchall()
    return {state: (n, f"{cents // 100}.{cents % 100:02}") for state, n, cents in rows}


def shown(typed: Typed, options: str = "") -> dict[str, tuple[int, str]]:
    """What sales_by_state shows."""
    rows = record(typed(f"rollview read sales_by_state --json {options}"))["rows"]
    return {row["state"]: (row["n"], row["total"]) for row in rows}


def change(file: str, *statements: str) -> None:
    """One transaction of another program."""
    with closing(sqlite3.connect(file)) as database, database:
        for statement in statements:
            database.execute(statement)


def test_every_state_can_be_read_and_rolled_to(shop: Path, typed: Typed) -> None:
    truth = {0: by_state()}
    assert shown(typed) == truth[0]
    # One at a time, so that it is known which csn each of them has.
    for csn, (file, *statements) in enumerate(
        [
            ("shop.db", "INSERT INTO sales VALUES (100, 1, 10.10)", "DELETE FROM sales WHERE sale_id = 2"),
            ("crm.db", "UPDATE customers SET state = 'NY' WHERE customer_id = 1"),
            ("shop.db", "INSERT OR REPLACE INTO sales VALUES (100, 2, 0.01)"),
            ("crm.db", "DELETE FROM customers WHERE customer_id = 5"),
        ],
        1,
    ):
        change(file, *statements)
        truth[csn] = by_state()
        captured = record(typed("rollview capture --json"))
        assert (captured["transactions"], captured["csn"]) == (1, csn)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", captured["commit_time"])
    assert record(typed("rollview propagate sales_by_state --to csn:3 --json"))["high_water"] == 3
    assert shown(typed) == truth[0]
    for csn in range(4):
        assert shown(typed, f"--as-of csn:{csn}") == truth[csn]
    assert record(typed("rollview apply sales_by_state --to csn:2 --json"))["csn"] == 2
    assert shown(typed) == truth[2]
    assert record(typed("rollview refresh sale_lines sales_by_state --to csn:3 --json"))["csn"] == 3
    assert shown(typed) == truth[3]
    assert record(typed("rollview refresh --json"))["csn"] == 4
    assert shown(typed) == truth[4]
    assert shown(typed, "--as-of csn:1") == truth[1]
    lines = record(typed("rollview read sale_lines --limit 2 --json"))
    assert (len(lines["rows"]), lines["total"], lines["csn"]) == (2, sum(n for n, _ in truth[4].values()), 4)
    deltas = record(typed("rollview deltas sales_by_state --from csn:1 --to csn:2 --json"))["rows"]
    rolled = {(state, *row): 1 for state, row in truth[1].items()}
    for row in deltas:
        key = (row["state"], row["n"], row["total"])
        rolled[key] = rolled.get(key, 0) + row["_count"]
    assert {row for row, count in rolled.items() if count} == {(s, *row) for s, row in truth[2].items()}
    answer = record(typed('rollview query "SELECT sum(n) AS n FROM sales_by_state" --json'))
    assert answer["rows"] == [{"n": sum(n for n, _ in truth[4].values())}]
    assert answer["csn"] == 4
    verdicts = record(typed("rollview verify --json"))["views"]
    assert [each["view"] for each in verdicts] == ["sale_lines", "large_sales", "sales_by_state"]
    assert all(each["right"] for each in verdicts)


def test_a_time_outside_is_refused_and_nothing_changes(shop: Path, typed: Typed) -> None:
    typed("python3 sell.py")
    typed("rollview run --once")
    typed("rollview status --json")
    before = tree(shop / "lake" / "views"), tree(shop / "lake" / "deltas"), tree(shop / "lake" / "changes")
    for line in (
        "rollview read sales_by_state --as-of csn:99",
        "rollview deltas sales_by_state --to csn:99",
        "rollview refresh sales_by_state --to csn:99",
        "rollview refresh sales_by_state --to csn:1",
        "rollview apply sales_by_state --to csn:99",
        "rollview condense sales_by_state --from csn:0 --to csn:99",
    ):
        result = typed(line, code=2)
        assert "view sales_by_state cannot be" in result.stderr, line
        assert "hint: possible: csn:" in result.stderr, line
    for line, reason in {
        "rollview read sales_by_state --as-of yesterday": "`yesterday` is not a valid point in time",
        "rollview read sales_by_state --as-of csn:x": "`csn:x` is not a valid csn",
        "rollview read sales": "there is no view `sales`",
        "rollview setup --reload sales": "there is no view `sales`",
        'rollview query "SELECT 1 FROM nothing"': "there is no view or captured table `nothing`",
    }.items():
        assert reason in typed(line, code=2).stderr
    after = tree(shop / "lake" / "views"), tree(shop / "lake" / "deltas"), tree(shop / "lake" / "changes")
    assert after == before


def test_verify_names_the_rows_that_differ(shop: Path, typed: Typed) -> None:
    """Somebody has written into a file of the lake: one total is wrong, and so is the number of a row."""
    (file,) = (shop / "lake" / "views" / "sales_by_state").glob("*.parquet")
    table = pq.read_table(file)
    position = table.column_names.index("n")
    wrong = [
        n + 1 if state == "NY" else n
        for state, n in zip(table["state"].to_pylist(), table["n"].to_pylist(), strict=True)
    ]
    pq.write_table(table.set_column(position, table.field("n"), pa.array(wrong, table.field("n").type)), file)
    printed = typed("rollview verify sales_by_state", code=1).stdout
    assert "2 rows differ" in printed
    assert re.search(r"stored\s+should be\s+state\s+n\s+total", printed)
    assert re.search(r"0\s+1\s+NY\s+2\s+258.25", printed)
    assert re.search(r"1\s+0\s+NY\s+3\s+258.25", printed)
    verdict = record(typed("rollview verify sales_by_state --json", code=1))["views"][0]
    assert (verdict["right"], verdict["different"]) == (False, 2)
    typed("rollview setup --reload sales_by_state")
    typed("rollview verify")


def write_past_the_triggers(file: str, table: str, statement: str) -> None:
    """What nobody can notice: triggers and seal are dropped for a write, and created again in order."""
    with closing(sqlite3.connect(file)) as database, database:
        made = database.execute(
            "SELECT type, name, sql FROM sqlite_schema WHERE (type = 'trigger' AND tbl_name IN (?, ?))"
            " OR name = '_rollview_seal' ORDER BY rowid",
            (table, f"_rollview_old_{table}"),
        ).fetchall()
        for kind, name, _ in made:
            database.execute(f'DROP {kind} "{name}"')
        database.execute(statement)
        for _, _, sql in made:
            database.execute(sql)


def test_a_difference_is_a_suspicion_against_the_table(shop: Path, typed: Typed) -> None:
    """All views that read the table are checked, and the hint reloads the wrong ones.

    A view over a view equals what it reads; it is reloaded with it.
    """
    (shop / "views" / "counted.sql").write_text(
        "CREATE MATERIALIZED VIEW counted AS SELECT sum(n) AS n FROM sales_by_state"
    )
    (shop / "views" / "customers_by_state.sql").write_text(
        "CREATE MATERIALIZED VIEW customers_by_state AS"
        " SELECT state, count(*) AS n FROM crm.customers GROUP BY state"
    )
    typed("rollview setup")
    write_past_the_triggers("shop.db", "sales", "DELETE FROM sales")
    change("shop.db", "INSERT INTO sales VALUES (900, 1, 1)")
    typed("rollview refresh")
    found = record(typed("rollview verify sale_lines --json", code=1))["views"]
    right = {each["view"]: each["right"] for each in found}
    assert right == {
        "sale_lines": False, "large_sales": True, "sales_by_state": False, "counted": True,
        "customers_by_state": True,
    }  # fmt: skip
    assert set(found[0]["suspects"]) == {each["view"] for each in found[1:]}
    printed = " ".join(typed("rollview verify sale_lines", code=1).stdout.split())
    others = re.search(r"other views read the same tables and were verified, too: ([\w, ]+) hint", printed)
    assert others is not None and set(others[1].split(", ")) == right.keys() - {"sale_lines"}
    reload = re.search(r"`(rollview setup( --reload \w+)+)` reloads them", printed)
    assert reload is not None and "customers_by_state" not in reload[1]
    typed(reload[1])
    assert all(each["right"] for each in record(typed("rollview verify --json"))["views"])
    assert shown(typed) == by_state()
    assert record(typed("rollview read counted --json"))["rows"] == [{"n": 1}]


def test_a_second_run_is_refused_before_it_begins_anything(
    shop: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Project, "answering", lambda _: pytest.fail("it was about to answer"))
    with Project.open(shop) as project, project._warehouse.catalog.lease("run", 0.0):
        assert "run is held by process" in typed("rollview run", code=1).stderr


def test_a_dry_run_prints_the_plan_and_changes_nothing(typed: Typed) -> None:
    typed("rollview init shop --sqlite")
    typed("cd shop")
    before = tree(Path.cwd())
    printed = typed("rollview setup --dry-run").stdout
    for line in (
        "source shop, when done:\n  created a counter of changes\n  table sales now writes a change log\n",
        "site crm: history of crm.customers will begin (first load)\n",
        "view sale_lines: will be loaded (first load)\n",
        "dry run: nothing was changed\n",
    ):
        assert line in printed
    plan = record(typed("rollview setup --dry-run --json"))
    assert set(plan) == {"dry_run", "actions", "warnings", "stopped"} and plan["dry_run"]
    assert plan["stopped"] == {}
    assert {"action": "load_view", "view": "large_sales", "reason": "first load"} in plan["actions"]
    (source,) = (each for each in plan["actions"] if each.get("source") == "crm")
    assert (source["action"], source["tables"]) == ("prepare_source", ["crm.customers"])
    assert tree(Path.cwd()) == before
    done = record(typed("rollview setup --json"))
    assert done["loaded"] == {
        each["view"]: each["reason"] for each in plan["actions"] if each["action"] == "load_view"
    }
    assert "view sale_lines: unchanged\n" in typed("rollview setup --dry-run").stdout


def test_several_administrators_get_their_statements_in_one_file(
    typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(source: SQLiteSource, tables: Sequence[Table]) -> SetupResult:
        return SetupResult(needed=tuple(f"GRANT ALL ON {table.name};" for table in tables))

    monkeypatch.setattr(SQLiteSource, "check", check)
    typed("rollview init shop --sqlite")
    typed("cd shop")
    before = tree(Path.cwd())
    for line in ("rollview setup", "rollview setup --dry-run"):
        printed = typed(f"{line} --statements needed.sql", code=2).stderr
        assert "error: 2 mistakes:\n  source " in printed
        assert "source shop needs its administrator:\n      GRANT ALL ON sales;\n" in printed
        asked = Path("needed.sql").read_text("utf-8")
        assert "-- source shop\nGRANT ALL ON sales;\n" in asked
        assert "-- source crm\nGRANT ALL ON customers;\n" in asked
        Path("needed.sql").unlink()
    assert tree(Path.cwd()) == before


def test_the_tutorial(typed: Typed) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    printed = {}
    for line in "".join(blocks).splitlines():
        code = re.search(r"# exit code (\d)", line)
        printed[line] = typed(line, int(code[1]) if code else 0).output
    one, other = [output.split()[2] for line, output in printed.items() if "query" in line]
    assert one == other


def test_what_init_prints_works(typed: Typed) -> None:
    """Also in a shell that would find another Python."""
    printed = typed("rollview init 'my shop'").stdout.split("next:\n")[1].splitlines()
    here, *commands = [line.strip() for line in printed]
    typed(here)
    if commands[0].startswith(". "):
        activate = commands.pop(0).partition("#")[0]
        found = f"{activate}; python3 -c 'import rollview, sys; print(sys.executable)'; command -v rollview"
        shell = subprocess.run(["sh", "-ec", found], capture_output=True, text=True, check=True)
        assert {Path(each).parent for each in shell.stdout.splitlines()} == {Path(sys.executable).parent}
    assert [line.partition("#")[0].strip() for line in commands] == [command for command, _ in NEXT_COMMANDS]
    for line in commands:
        typed(line)


def test_init_says_where_the_commands_are_if_the_shell_would_not_find_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = str(Path(sys.executable).parent)
    for number, (path, lines) in enumerate(((f"{ours}:/bin", 0), ("/usr/bin:/bin", 1))):
        monkeypatch.setenv("PATH", path)
        result = CliRunner().invoke(main, ["init", str(tmp_path / str(number)), "--sqlite", "--json"])
        commands = json.loads(result.stdout)["next"]
        assert len(commands) == len(NEXT_COMMANDS) + lines, commands


def test_the_examples_of_help_work(shop: Path, typed: Typed) -> None:
    """Views are reloaded after what reads their past, capture is removed last; `run` would not end."""
    names = [name for section in COMMANDS.values() for name in section]
    commands = [main.get_command(None, name) for name in names if name not in ("demo", "simulate", "init")]
    lines = [line for command in commands if command for line in examples(command)]
    # These would not end, or need a transaction that waits, a lake that does not fit, a server, a bucket.
    serving = ("rollview run", "rollview ui", "rollview status --watch")
    endless = {line for line in lines if line.startswith(serving) and "--once" not in line}
    left_out = {*endless, "rollview release transfer-4711", "rollview recover"}
    left_out |= {line for line in lines if line.startswith("rollview move-")}
    lines = [line for line in lines if line not in left_out and "--schema" not in line]
    last = [line for line in lines if "condense" in line]
    last += [*(line for line in lines if "--reload" in line), "rollview setup --remove"]
    assert len(lines) > 20
    middle = [line for line in lines if line not in last]
    for line in ("python3 sell.py", "rollview run --once", *middle, *last):
        typed(line)
