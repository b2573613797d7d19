"""`rollview simulate` and `rollview demo --anomaly` as a user types them, wrong input included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rollview.cli import main
from rollview.lab.examples.strobe import DELETION_AFTER_FIRST_ANSWER, example_world
from rollview.lab.simulator.world import to_json


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_help_teaches() -> None:
    result = run("simulate", "--help")
    assert result.exit_code == 0
    for word in (
        "single-update|source-local|global",
        "fifo|misordered|lossy|hostile",
        "--exhaustive",
        "Exit code 1",
    ):
        assert word in result.output


def test_a_clean_campaign() -> None:
    result = run("simulate", "--runs", "30", "--network", "hostile", "--scenario", "global")
    assert result.exit_code == 0, result.output
    assert "30 seeded runs" in result.output
    assert "every run reached: complete (expected: complete)" in result.output


def test_json_is_one_object() -> None:
    result = run("simulate", "--runs", "20", "--json")
    record = json.loads(result.output)
    assert record["level"] == "complete"
    assert record["levels"] == {"complete": 20}
    assert record["runs"] == 20


def test_a_campaign_that_falls_short_prints_the_story() -> None:
    result = run("simulate", "--algorithm", "conventional", "--runs", "300", "--scenario", "single-update")
    assert result.exit_code == 1
    assert "falls short; shrunk to its core" in result.output
    assert "missed convergence" in result.output
    assert "commits version 1" in result.output


def test_exhaustive(tmp_path: Path) -> None:
    file = tmp_path / "world.json"
    file.write_text(json.dumps(to_json(example_world())), encoding="utf-8")
    result = run("simulate", "--algorithm", "conventional", "--exhaustive", "--world", str(file), "--json")
    record = json.loads(result.output)
    assert record["exhausted"] is True
    assert record["level"] == "none"
    assert result.exit_code == 1
    cut = json.loads(run("simulate", "--exhaustive", "--world", str(file), "--runs", "50", "--json").output)
    assert (cut["exhausted"], cut["runs"], cut["level"]) == (False, 50, "complete")


def test_a_view_of_ones_own() -> None:
    result = run(
        "simulate", "--runs", "20", "--relations", "2", "--network", "hostile",
        "--view", "SELECT t1.a, sum(t1.b) AS s FROM x.t1 JOIN x.t1 AS other ON t1.a = other.b GROUP BY t1.a",
    )  # fmt: skip
    assert result.exit_code == 0, result.output


def test_explain_shows_the_normal_form() -> None:
    sql = "SELECT t1.k FROM x.t1 JOIN x.t2 ON t1.a = t2.b AND t2.a > 1"
    result = run("simulate", "--explain", "--view", sql, "--relations", "2", "--seed", "1")
    assert result.exit_code == 0, result.output
    assert "edges\n    t1.a = t2.b" in result.output
    assert "local\n    t2.a > 1" in result.output
    assert "sweep: serves it" in result.output
    assert "strobe: refused, the view does not keep the key of every relation" in result.output


def _world(**changes: Any) -> dict[str, Any]:
    return {**to_json(example_world()), **changes}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--view", "SELECT t9.a FROM x.t9"], "t9"),
        (["--view", "SELECT a FROM x.t1 l, x.t1 r"], "ambiguous"),
        (["--view", "SELECT a FROM x.t1 TABLESAMPLE (5 ROWS)"], "TABLESAMPLE"),
        (["--view", "SELECT FROM WHERE"], "line 1"),
        (["--view", "SELECT a FROM x.t1", "--algorithm", "conventional"], "does not keep the key"),
        (["--views", "2", "--algorithm", "conventional"], "one view at a time"),
        (["--views", "2", "--view", "SELECT a FROM x.t1"], "--views draws views"),
        (["--exhaustive", "--jobs", "2"], "one process"),
        (["--trace", "no/such/folder/run.jsonl"], "does not exist"),
        (["--trace", "."], "is a folder, not a file"),
        (["--world", "no-such-file.json"], "cannot read"),
        (["--world", "."], "cannot read"),
        (["--algorithm", "all", "--view", "SELECT a FROM x.t1"], "generates its own worlds"),
        (["--algorithm", "all", "--write", "no/such/folder/page.md"], "does not exist"),
        (["--write", "page.md"], "--write needs --algorithm all"),
        (["--costs"], "--costs needs --algorithm all"),
        (["--algorithm", "all", "--costs", "--write", "page.md"], "has no tables of costs"),
        (["--relations", "0"], "0 is not in the range"),
        (["--algorithm", "magic"], "'magic' is not one of"),
        (["--example", "zhuge1996/7"], "did you mean zhuge1996/"),
        (["--example", "zhuge1996/5", "--runs", "3"], "--example cannot be combined with --runs"),
        (["--example", "beyer2000/4.1", "--trace", "run.jsonl"], "beyer2000/4.1 has no trace"),
        (["--example", "all"], "--example all writes the page"),
        (["--example", "zhuge1996/5", "--write", "page.md"], "--write needs --example all"),
        (["--list", "--seed", "1"], "--list cannot be combined with --seed"),
    ],
)
def test_bad_input_exits_with_two_and_writes_nothing(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("simulate", *arguments)
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("world", "message"),
    [
        ([], "does not hold a JSON object"),
        ({"relations": []}, "malformed"),
        (_world(initial={"x.r1": [[1, 2], [1, 3]]}), "(A) is not a key of x.r1: [1] occurs twice"),
        (_world(initial={"x.r1": [[None, 2]]}), "is not a key of x.r1: [None] is NULL"),
        (_world(initial={"x.r1": [[1]]}), "x.r1 has columns A, B, but a row [1]"),
        (_world(initial={"x.r9": [[1, 2]]}), "unknown x.r9"),
        (_world(scripts={"x": [{"changes": [["x.r1", [7, 7], -1]]}]}), "[7, 7] is deleted from x.r1"),
        (_world(scripts={"x": [{"changes": [["y.r2", [7, 7], 1]]}]}), "a transaction of x changes y.r2"),
        (_world(views=[]), "no view"),
        (_world(views=[{"name": "v", "sql": "SELECT B FROM x.r1, y.r2"}]), "ambiguous"),
    ],
)
def test_a_world_that_cannot_exist(world: Any, message: str, tmp_path: Path) -> None:
    file, trace = tmp_path / "world.json", tmp_path / "trace.jsonl"
    file.write_text(json.dumps(world), encoding="utf-8")
    result = run("simulate", "--world", str(file), "--trace", str(trace))
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert not trace.exists()


def test_an_unknown_key_column(tmp_path: Path) -> None:
    world = _world()
    world["relations"][0]["key"] = ["Z"]
    file = tmp_path / "world.json"
    file.write_text(json.dumps(world), encoding="utf-8")
    result = run("simulate", "--world", str(file))
    assert result.exit_code == 2
    assert "the key of x.r1 names Z, which is not one of its columns" in result.output
    assert "its columns are A, B" in result.output


def test_the_demo_prints_its_story() -> None:
    result = run("demo", "--anomaly", "--runs", "20")
    assert result.exit_code == 0
    assert "final view: [1, 2, 3, 4]" in result.output
    assert "all 118 schedules: 10 end with a wrong view" in result.output
    assert "20 runs" in result.output


def _written(tmp_path: Path, world: dict[str, Any]) -> str:
    file = tmp_path / "world.json"
    file.write_text(json.dumps(world), encoding="utf-8")
    return str(file)


def test_a_world_with_a_schedule_is_replayed(tmp_path: Path) -> None:
    """By the algorithm that it names; by another one with other states; a run is repeated from its trace."""
    world = _world(schedule=list(DELETION_AFTER_FIRST_ANSWER), algorithm="conventional", network="fifo")
    file, trace = _written(tmp_path, world), tmp_path / "run.jsonl"
    result = run("simulate", "--world", file, "--json", "--trace", str(trace), "--expect", "convergence")
    record = json.loads(result.output)
    assert (result.exit_code, record["algorithm"], record["runs"], record["level"]) == (
        1,
        "conventional",
        1,
        "none",
    )
    strobe = json.loads(run("simulate", "--world", file, "--algorithm", "strobe", "--json").output)
    assert (strobe["algorithm"], strobe["level"], strobe["runs"]) == ("strobe", "strong", 1)
    again = tmp_path / "again.jsonl"
    assert run("simulate", "--world", str(trace), "--trace", str(again)).exit_code == 1
    assert again.read_text(encoding="utf-8") == trace.read_text(encoding="utf-8")


def test_every_kind_of_run_is_replayed_from_its_trace(tmp_path: Path) -> None:
    """Hostile networks and snapshots included; seeds are not needed."""
    for seed in range(12):
        first, again = tmp_path / f"{seed}.jsonl", tmp_path / f"{seed}-again.jsonl"
        given = ("--network", "hostile", "--scenario", "global", "--transactions", "6")
        assert (
            run("simulate", "--runs", "1", "--seed", str(seed), *given, "--trace", str(first)).exit_code == 0
        )
        assert run("simulate", "--world", str(first), "--trace", str(again)).exit_code == 0
        one, other = (file.read_text(encoding="utf-8").splitlines() for file in (first, again))
        assert other[1:] == one[1:]
        assert json.loads(other[0])["schedule"] == json.loads(one[0])["schedule"]


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"schedule": ["commit q"]}, [], "`commit q` cannot happen here; these can: commit x, commit y"),
        ({"schedule": "commit x"}, [], "not an array of steps"),
        ({"schedule": [7]}, [], "not an array of steps"),
        ({"schedule": [], "algorithm": "magic"}, [], "unknown algorithm: 'magic'"),
        ({"schedule": [], "algorithm": ["sweep"]}, [], "unknown algorithm: ['sweep']"),
        ({"schedule": []}, ["--runs", "7"], "cannot be combined with --runs"),
        ({"schedule": []}, ["--exhaustive"], "cannot be combined with --exhaustive"),
        (
            {"schedule": ["commit x", "deliver x"], "scripts": {}, "algorithm": "strobe"},
            [],
            "`commit x` is still in its schedule",
        ),
    ],
)
def test_a_schedule_that_cannot_be(
    changes: dict[str, Any], options: list[str], message: str, tmp_path: Path
) -> None:
    result = run("simulate", "--world", _written(tmp_path, _world(**changes)), *options)
    assert result.exit_code == 2, result.output
    assert message in result.output.replace("\n", " ")


def test_an_example_is_replayed(tmp_path: Path) -> None:
    """The paper's numbers beside ours, a difference with its note, and a trace that --world takes."""
    result = run("simulate", "--example", "zhuge1996/6")
    assert result.exit_code == 0, result.output
    assert "C-Strobe applied again" in result.output
    assert "y commits version 1: +1 y.r2[2, 3]" in result.output
    assert "differs" in result.output
    assert "design note 006: both neighbours are asked in one round" in result.output
    trace = tmp_path / "run.jsonl"
    record = json.loads(run("simulate", "--example", "zhuge1996/5", "--trace", str(trace), "--json").output)
    assert [line["agrees"] for line in record["lines"]] == [True] * 5
    replayed = json.loads(run("simulate", "--world", str(trace), "--json").output)
    assert (replayed["algorithm"], replayed["level"]) == ("c-strobe", "complete")


def test_examples_are_listed() -> None:
    result = run("simulate", "--list")
    assert result.exit_code == 0
    for key in ("beyer2000/figure-3", "salem2000/figure-9", "sze2000/12", "zhuge1996/6-grouped"):
        assert key in result.output
    assert "zhuge1996/1" in json.loads(run("simulate", "--list", "--json").output)
