"""`rollview simulate` and `rollview demo --anomaly` as a user types them, wrong input included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rollview.cli import main
from rollview.simulator.example import example_world
from rollview.simulator.world import to_json


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


def test_a_campaign_that_falls_short_tells_the_story() -> None:
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
        (["--relations", "0"], "0 is not in the range"),
        (["--algorithm", "magic"], "'magic' is not one of"),
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


def test_the_demo_tells_its_story() -> None:
    result = run("demo", "--anomaly", "--runs", "20")
    assert result.exit_code == 0
    assert "final view: [1, 2, 3, 4]" in result.output
    assert "all 118 schedules: 10 end with a wrong view" in result.output
    assert "20 runs" in result.output
