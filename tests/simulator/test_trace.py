"""The trace alone is enough: somebody else's checker, written against the documented format with DuckDB."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner

from rollview.cli import main
from rollview.lab.simulator.world import from_json, to_json

Record = dict[str, Any]


def _trace(tmp_path: Path, *options: str) -> list[Record]:
    file = tmp_path / "run.jsonl"
    CliRunner().invoke(main, ["simulate", "--runs", "1", "--trace", str(file), *options])
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


class _Elsewhere:
    """A checker that knows the trace format and SQL, and nothing of rollview."""

    def __init__(self, records: list[Record]) -> None:
        self.world = records[0]
        self.commits = [record for record in records if record["event"] == "commit"]
        self.publishes = [record for record in records if record["event"] == "publish"]
        self._database = duckdb.connect()
        for source in {relation["source"] for relation in self.world["relations"]}:
            self._database.execute(f"CREATE SCHEMA {source}")

    def views_at(self, versions: dict[str, int]) -> dict[str, Counter[tuple[Any, ...]]]:
        """Replays commits up to these versions into real tables and runs the views' own SQL."""
        rows: dict[str, Counter[tuple[Any, ...]]] = {}
        for relation in self.world["relations"]:
            name = f"{relation['source']}.{relation['name']}"
            rows[name] = Counter(map(tuple, self.world["initial"].get(name, [])))
        for commit in self.commits:
            if commit["source_version"] <= versions[commit["source"]]:
                for name, row, count in commit["changes"]:
                    rows[name][tuple(row)] += count
        for relation in self.world["relations"]:
            name = f"{relation['source']}.{relation['name']}"
            columns = ", ".join(f"{column} INTEGER" for column in relation["columns"])
            self._database.execute(f"CREATE OR REPLACE TABLE {name} ({columns})")
            values = [list(row) for row in rows[name].elements()]
            if values:
                holes = ", ".join("?" * len(relation["columns"]))
                self._database.executemany(f"INSERT INTO {name} VALUES ({holes})", values)
        return {
            view["name"]: Counter(self._database.execute(view["sql"]).fetchall())
            for view in self.world["views"]
        }

    def assert_complete(self) -> None:
        """Every publish is the views at its versions, and versions grow by one transaction at a time."""
        previous = dict.fromkeys({relation["source"] for relation in self.world["relations"]}, 0)
        final = Counter(commit["source"] for commit in self.commits)
        for publish in self.publishes:
            versions = publish["versions"]
            shown = {
                name: Counter({tuple(row): count for row, count in rows})
                for name, rows in publish["views"].items()
            }
            assert shown == self.views_at(versions)
            steps = {source: versions[source] - previous[source] for source in versions}
            moved = {source for source, step in steps.items() if step}
            assert all(step in (0, 1) for step in steps.values())
            names = {
                commit["global_id"]
                for commit in self.commits
                if commit["source"] in moved and commit["source_version"] == versions[commit["source"]]
            }
            assert len(moved) <= 1 or (len(names) == 1 and None not in names)
            previous = versions
        assert previous == {source: final[source] for source in previous}


@pytest.mark.parametrize("seed", range(12))
def test_oracle_duckdb_agrees_with_every_published_state(seed: int, tmp_path: Path) -> None:
    records = _trace(
        tmp_path, "--seed", str(seed), "--scenario", "global", "--network", "hostile", "--views", "2"
    )
    assert [record["event"] for record in records].count("world") == 1
    assert records[-1]["event"] == "verdict" and records[-1]["level"] == "complete"
    _Elsewhere(records).assert_complete()


def test_the_other_checker_can_fail(tmp_path: Path) -> None:
    records = _trace(tmp_path, "--seed", "1", "--scenario", "global")
    shown = next(record for record in records if record["event"] == "publish" and record["csn"] == 3)
    shown["versions"][next(iter(shown["versions"]))] += 1
    with pytest.raises(AssertionError):
        _Elsewhere(records).assert_complete()


def test_a_world_comes_back_from_its_trace(tmp_path: Path) -> None:
    world = _trace(tmp_path, "--seed", "5", "--scenario", "global")[0]
    again = to_json(from_json(world))
    assert again == {key: value for key, value in world.items() if key in again}
