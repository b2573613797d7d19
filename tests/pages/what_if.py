"""The tables "what if …" of the docs: each test of an act declares the lines that it proves.

`python tests/pages/what_if.py` writes the tables into the pages, between comments that name them. Lines come
below their headings in the order of the files and of the tests in them. What no test can prove is in none of
these tables; the pages list it automatically, as what cannot be noticed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

TESTS = Path(__file__).parents[1]
DOCS = TESTS.parent / "docs"
NOTHING = "nothing stops"

Test = TypeVar("Test", bound=Callable[..., None])


@dataclass(frozen=True)
class Line:
    """What happens if somebody does something, and how it is noticed; `table` and `heading` are its place."""

    table: str
    heading: str
    what: str
    happens: str
    noticed: str = ""


@dataclass(frozen=True)
class Table:
    """A table of a page. Each line stands below one of the `headings`; an empty one comes first."""

    page: str
    columns: tuple[str, ...]
    headings: tuple[str, ...]


TABLES = {
    "all sources": Table("what-if.md", ("what", "what happens"), ("",)),
    "PostgreSQL": Table(
        "how-to/postgresql.md",
        ("what", "what happens"),
        (
            "",
            "the views of that table stop; `rollview setup` reloads them",
            "the views that use the column stop; `rollview setup`, after their files are edited if need be,"
            " reloads them",
            "the views of all tables stop; `rollview setup` reloads them",
            "all views of the source stop; `rollview setup --reload crm` reloads them",
            "look-ups are refused, capture continues",
            NOTHING,
        ),
    ),
    "MariaDB": Table(
        "how-to/mariadb.md",
        ("what", "what happens", "noticed by"),
        (
            NOTHING,
            "columns are lost",
            "the table is lost",
            "all tables of the database are lost",
            "all views of the source stop",
            "look-ups are refused, capture continues",
        ),
    ),
    "SQLite": Table(
        "how-to/sqlite.md",
        ("act", "what happens", "how it is noticed"),
        (NOTHING, "the table is lost", "the source stops"),
    ),
    "Delta tables": Table(
        "how-to/delta.md",
        ("act", "what happens", "how it is noticed"),
        (NOTHING, "the table stops"),
    ),
    "dumps": Table(
        "how-to/files.md",
        ("act", "what happens", "how it is noticed"),
        (NOTHING, "the table stops"),
    ),
}


def what_if(
    table: str,
    what: str,
    happens: str,
    noticed: str = "",
    *,
    under: str = "",
) -> Callable[[Test], Test]:
    """Says which line a test proves. A test may prove several, and a line be proved by several tests."""
    return lambda test: test


def declared_lines() -> list[Line]:
    """What all tests declare, each line once."""
    found = (line for file in sorted(TESTS.rglob("test_*.py")) for line in _lines_of(file))
    return list(dict.fromkeys(found))


def _lines_of(file: Path) -> Iterator[Line]:
    text = file.read_text(encoding="utf-8")
    if what_if.__name__ not in text:
        return
    for node in ast.walk(ast.parse(text)):
        for call in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == what_if.__name__:
                table, what, happens, *noticed = [ast.literal_eval(each) for each in call.args]
                named = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
                yield Line(table, named.get("under", ""), what, happens, *noticed)


def table_text(name: str) -> str:
    """A table, as its page has it."""
    table = TABLES[name]
    width = len(table.columns)
    rows: list[tuple[str, ...]] = []
    own = [line for line in declared_lines() if line.table == name]
    for heading in table.headings:
        if heading:
            rows.append((f"**{heading}**", *[""] * (width - 1)))
        rows += [(line.what, line.happens, line.noticed)[:width] for line in own if line.heading == heading]
    head = f"{_row(table.columns)}{'|---' * width}|\n"
    return head + "".join(map(_row, rows))


def _row(cells: tuple[str, ...]) -> str:
    return "".join(f"| {cell} " if cell else "| " for cell in cells) + "|\n"


def page_text(page: str) -> str:
    """A page with its tables as the tests have them."""
    text = (DOCS / page).read_text(encoding="utf-8")
    for name, table in TABLES.items():
        if table.page == page:
            before, begin, rest = text.partition(f"<!-- what if: {name} -->\n")
            assert begin, f"{page} has no place for the table of {name}"
            _, end, after = rest.partition("<!-- end -->\n")
            text = f"{before}{begin}{table_text(name)}{end}{after}"
    return text


if __name__ == "__main__":
    for path in sorted({table.page for table in TABLES.values()}):
        (DOCS / path).write_text(page_text(path), encoding="utf-8")
