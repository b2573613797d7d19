"""Openness: a toy connector keeps the contract, and a project file can name its kind."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import json_lines_source
import pytest
from json_lines_source import JsonLinesSource
from pyspark.sql import SparkSession

from rollview import Project
from rollview.errors import InputError
from rollview.sources.registry import open_source
from rollview.sources.source import Source
from rollview.testing import Driver, Row, SourceSuite, Write

pytestmark = pytest.mark.slow


class JsonLinesDriver(Driver):
    """Appends lines, as any program could."""

    gaps = {  # noqa: RUF012
        f"type {kind}": "JSON has no such values"
        for kind in ("decimal(15,2)", "date", "timestamp", "timestamp_ntz", "binary")
    }

    def create(self, rows: Mapping[str, Sequence[Row]]) -> None:
        described = {name: dict(columns) for name, columns in self.schemas.items()}
        (self.folder / "schema.json").write_text(json.dumps(described))
        self._append([[name, 1, row] for name, each in rows.items() for row in each])

    def open(self) -> Source:
        return JsonLinesSource("s", self.folder)

    def commit(self, writes: Sequence[Write]) -> None:
        self._append(
            [
                [write.table, count, row]
                for write in writes
                for count, row in ((-1, write.before), (1, write.after))
                if row is not None
            ]
        )

    def rows(self, table: str) -> Counter[Row]:
        counts: Counter[Row] = Counter()
        for line in (self.folder / "log.jsonl").read_text().splitlines():
            for name, count, row in json.loads(line)["changes"]:
                if name == table:
                    counts[tuple(row)] += count
        return +counts

    def traces(self) -> Any:
        return sorted(path.name for path in self.folder.iterdir())

    def _append(self, changes: Sequence[Any]) -> None:
        with (self.folder / "log.jsonl").open("a") as log:
            log.write(json.dumps({"time": 1.0, "changes": changes}) + "\n")


class TestJsonLines(SourceSuite):
    driver = JsonLinesDriver


def test_the_toy_knows_the_contract_alone_and_is_small() -> None:
    text = Path(json_lines_source.__file__).read_text(encoding="utf-8")
    imported = {
        node.module for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) and node.module
    }
    assert {name for name in imported if name.startswith("rollview")} == {
        "rollview.errors",
        "rollview.sources.source",
    }
    assert len(text.splitlines()) < 170


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package metadata that pip would leave beside an outside package."""
    metadata = tmp_path / "site" / "rollview_jsonl-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: rollview-jsonl\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[rollview.sources]\n"
        "jsonl = json_lines_source:JsonLinesSource.open\n"
        "broken = no_such_module_of_theirs:open\n"
        "sqlite = json_lines_source:JsonLinesSource.open\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "site")


@pytest.mark.usefixtures("installed")
def test_kinds_come_from_entry_points(tmp_path: Path) -> None:
    assert isinstance(open_source("s", "jsonl", {"path": "."}, tmp_path), JsonLinesSource)
    assert open_source("s", "sqlite", {"path": "a.db"}, tmp_path).kind == "sqlite"
    with pytest.raises(InputError, match="has no `path`"):
        open_source("s", "jsonl", {}, tmp_path)
    with pytest.raises(InputError, match="did you mean `jsonl`"):
        open_source("s", "jsonls", {"path": "."}, tmp_path)
    with pytest.raises(InputError, match="`broken` cannot be loaded from no_such_module_of_theirs:open"):
        open_source("s", "broken", {}, tmp_path)


@pytest.mark.usefixtures("installed")
def test_a_project_names_the_kind_and_its_views_are_maintained(tmp_path: Path, spark: SparkSession) -> None:
    folder = tmp_path / "shop"
    (folder / "data").mkdir(parents=True)
    (folder / "views").mkdir()
    (folder / "rollview.yml").write_text("name: toy\nsources:\n  shop: {type: jsonl, path: ./data}\n")
    (folder / "views" / "named.sql").write_text(
        "CREATE MATERIALIZED VIEW named AS SELECT o.id, c.name FROM shop.orders o"
        " JOIN shop.customer c ON o.cust = c.id WHERE c.region >= 1"
    )
    driver = JsonLinesDriver(
        folder / "data",
        {"orders": [(1, 1, "a"), (2, 2, None)], "customer": [(1, 1, "Ann"), (2, None, "Bob")]},
    )
    with Project.open(folder, spark) as project:
        project.setup()
        driver.commit(
            [Write("orders", None, (3, 1, "b")), Write("customer", (2, None, "Bob"), (2, 5, "Bea"))]
        )
        driver.commit([Write("orders", (1, 1, "a"), None)])
        driver.commit([Write("customer", (1, 1, "Ann"), (1, 2, "Ann")), Write("orders", None, (4, 2, ""))])
        project.run(once=True)
        assert {tuple(row) for row in project.read("named").collect()} == {
            (2, "Bea"),
            (3, "Ann"),
            (4, "Bea"),
        }
        assert [each.different for each in project.verify()] == [0]
