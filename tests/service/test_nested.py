"""Arrays and structs: from the columns of a Delta table to those of views, and in joins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from shop import frozen

from rollview.errors import UnsupportedError
from rollview.project.project import Project
from rollview.rows import arrow_type, spark_type
from rollview.sources.delta.log import definition
from rollview.sources.files.state import net_effect

NESTED = "struct<a:bigint,b:array<struct<x:decimal(10,2),y:string>>>"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("town", pa.string()), ("zip", pa.int64())])),
    ]
)
VIEWS = {
    "all_of_it": "SELECT id, tags, place, place.town AS town FROM d.t WHERE id > 0",
    "by_tag": "SELECT e.tag, count(*) AS n FROM d.t LATERAL VIEW explode(tags) e AS tag GROUP BY e.tag",
    "by_place": "SELECT place, sort_array(collect_list(id)) AS ids FROM d.t GROUP BY place",
    "alike": "SELECT a.id, b.id AS other FROM d.t a JOIN d.t b ON a.tags = b.tags AND a.id < b.id",
    "fields": "SELECT id, place.town, t.place.zip FROM d.t WHERE place.town <> 'x'",
    "spread": "SELECT place.*, id FROM d.t",
    "newest": "SELECT place.town, max(id) AS id FROM d.t GROUP BY place.town",
    "zipped": "SELECT id, arrays_zip(tags, array(1)) AS z FROM d.t WHERE id = 4",
    "towns": "SELECT DISTINCT place.town AS town, ids FROM by_place",
}


@pytest.mark.parametrize("kind", ["array<bigint>", NESTED])
def test_nested_types_have_their_names(kind: str) -> None:
    assert spark_type(arrow_type(kind)) == kind


@pytest.mark.parametrize(
    "kind", ["map<string,bigint>", "array<map<int,int>>", "struct<>", "array<>", "variant"]
)
def test_what_cannot_be_stored_is_said(kind: str) -> None:
    with pytest.raises(UnsupportedError):
        arrow_type(kind)


def test_nested_rows_cancel() -> None:
    rows = pa.table(
        {"a": [[1, None], [1, None], [], None], "_count": [1, -1, 2, 1]},
        schema=pa.schema([("a", pa.list_(pa.int64())), ("_count", pa.int64())]),
    )
    assert net_effect(rows).to_pylist() == [{"a": [], "_count": 2}, {"a": None, "_count": 1}]


def test_a_delta_schema_is_read() -> None:
    schema = """{"fields": [{"name": "a", "type": {"type": "array", "elementType": {"type": "struct",
        "fields": [{"name": "x", "type": "long"}]}}}, {"name": "m", "type": {"type": "map"}}]}"""
    assert definition("1", schema, ()).columns == (("a", "array<struct<x:bigint>>"), ("m", "map"))


@pytest.mark.slow
def test_oracle_views_over_nested_columns(tmp_path: Path, spark: SparkSession) -> None:
    _append(tmp_path, (1, ["x", "y"], "u", 1), (2, [], None, 2), (3, None, "v", 3), (4, ["y"], "u", 1))
    (tmp_path / "rollview.yml").write_text("lake: ./lake\nsources:\n  d: {type: delta, path: ./d}\n")
    (tmp_path / "views").mkdir()
    for name, sql in VIEWS.items():
        (tmp_path / "views" / f"{name}.sql").write_text(sql)
    with Project.open(tmp_path, spark) as project:
        project.setup()
        _append(tmp_path, (5, ["y"], "u", 1), (6, ["z", None], None, None))
        DeltaTable(tmp_path / "d/t").delete("id = 1")
        project.run(once=True)
        rows = {view: {frozen(row) for row in project.read(view).collect()} for view in VIEWS}
        assert rows["by_tag"] == {("y", 2), ("z", 1), (None, 1)}
        assert rows["by_place"] == {
            (("u", 1), (4, 5)), ((None, 2), (2,)), (("v", 3), (3,)), ((None, None), (6,)),
        }  # fmt: skip
        assert rows["alike"] == {(4, 5)}
        assert rows["fields"] == {(3, "v", 3), (4, "u", 1), (5, "u", 1)}
        assert rows["spread"] == {(None, 2, 2), ("v", 3, 3), ("u", 1, 4), ("u", 1, 5), (None, None, 6)}
        assert rows["newest"] == {("u", 5), ("v", 3), (None, 6)}
        assert rows["zipped"] == {(4, (("y", 1),))}
        assert rows["towns"] == {("u", (4, 5)), (None, (2,)), ("v", (3,)), (None, (6,))}
        assert {frozen(row) for row in project.read("by_tag", 0).collect()} == {("x", 1), ("y", 2)}
        assert [verdict.view for verdict in project.verify() if not verdict.is_right] == []


def _append(folder: Path, *rows: tuple[Any, ...]) -> None:
    listed = [{"id": i, "tags": tags, "place": {"town": town, "zip": z}} for i, tags, town, z in rows]
    write_deltalake(folder / "d/t", pa.Table.from_pylist(listed, schema=SCHEMA), mode="append")
