"""Suites that others wrote, as scripts: statements in their order, whatever the file they stand in.

| file | what is read |
|---|---|
| `x.schema.sql`, `x.data.sql`, `x.query.sql`, also with `_` | one script of the three |
| `*.sql` | statements up to a semicolon; of Spark's golden files also what `--IMPORT` names |
| `*.slt`, `*.test` | sqllogictest: what follows `statement ok` and `query`, `include` |
| `*.td` | testdrive: what follows `>` |
| `*.json`, `*.yml`, `*.yaml` | documents with a schema, data and queries |
| `*.md` | blocks that are marked as `sql` |

A `schema.sql` belongs to every file of its folder and below, which become one script.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

SCHEMA = "schema.sql"
_PARTS = ("schema", "data", "query")
_KEYS = (
    ("schema", "tables", "ddl", "setup", "create"),
    ("data", "inserts", "insert", "rows"),
    ("query", "queries", "sql", "view", "views", "select"),
)
"""How documents call what comes first, second and third."""


@dataclass(frozen=True)
class Statement:
    """One statement, and what its query is called if it is one."""

    name: str
    text: str


@dataclass(frozen=True)
class Script:
    """Statements that belong together, in the dialect that they are written in."""

    name: str
    dialect: str
    statements: tuple[Statement, ...]


def scripts_in(folder: Path, dialect: str | None = None, schema: Path | None = None) -> Iterator[Script]:
    """All scripts of a folder; `dialect` says what its files are written in, if that is not the usual."""
    shared: dict[Path, list[Statement]] = defaultdict(list)
    for file in sorted(each for each in folder.rglob("*") if each.is_file()):
        reader = _reader(file)
        if reader is None or file == schema:
            continue
        usual, read = reader
        name = _identifier(str(file.relative_to(folder)))
        statements = list(_numbered(name, read(file)))
        above = schema or _schema_above(file, folder)
        if above is not None:
            shared[above] += statements
        elif statements:
            yield Script(name, dialect or usual, tuple(statements))
    for above, statements in shared.items():
        inside = above.relative_to(folder).parent.parts if above.is_relative_to(folder) else ()
        first = list(_numbered("schema", statements_of(above.read_text("utf-8"))))
        yield Script(_identifier("_".join(inside) or folder.name), dialect or "spark", (*first, *statements))


def _reader(file: Path) -> tuple[str, Any] | None:
    """The dialect that such a file is usually written in, and who reads it."""
    name = file.name
    if name == SCHEMA or re.search(r"[._](schema|data)\.sql$", name):
        return None
    if re.search(r"[._]query\.sql$", name):
        return "spark", _of_three
    readers = {
        ".sql": ("spark", _of_sql),
        ".slt": ("postgres", _of_sqllogictest),
        ".test": ("duckdb", _of_sqllogictest),
        ".td": ("postgres", _of_testdrive),
        ".json": ("spark", _of_documents),
        ".yml": ("spark", _of_documents),
        ".yaml": ("spark", _of_documents),
        ".md": ("spark", _of_markdown),
    }
    return readers.get(file.suffix)


def _schema_above(file: Path, folder: Path) -> Path | None:
    """The nearest schema of the folders that a file is in."""
    for parent in file.parents:
        if (parent / SCHEMA).exists():
            return parent / SCHEMA
        if parent == folder:
            return None
    return None


def _identifier(name: str) -> str:
    """A file's place as a name."""
    bare = re.sub(r"([._]query\.sql|\.sql|\.slt|\.test|\.td|\.json|\.ya?ml|\.md)$", "", name)
    return re.sub(r"\W+", "_", bare).strip("_").lower()


def _numbered(name: str, texts: Iterable[str]) -> Iterator[Statement]:
    found = list(texts)
    for number, text in enumerate(found, 1):
        yield Statement(name if len(found) == 1 else f"{name}_{number}", text)


_APART = re.compile(
    r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/|\$\$.*?\$\$|;""", re.S
)
"""Semicolons, and what may have some inside that end nothing."""


def statements_of(text: str) -> Iterator[str]:
    """Statements up to a semicolon that stands neither in quotes nor in a comment."""
    start, place, blocks = 0, 0, _delimited(text)
    while (match := _APART.search(text, place)) is not None:
        place = match.end()
        if match[0] == ";" and not any(begin <= match.start() < end for begin, end in blocks):
            if without_comments(text[start : match.start()]):
                yield text[start : match.start()].strip()
            start = place
    if without_comments(text[start:]):
        yield text[start:].strip()


def _delimited(text: str) -> list[tuple[int, int]]:
    """Blocks that are one statement, semicolons and all."""
    pattern = r"--QUERY-DELIMITER-START(.*?);\s*\n--QUERY-DELIMITER-END"
    return [match.span(1) for match in re.finditer(pattern, text, re.S)]


def without_comments(text: str) -> str:
    """A statement's own words."""
    pattern = r"""('(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|`[^`]*`)|--[^\n]*|/\*.*?\*/"""
    return re.sub(pattern, lambda match: match[1] or " ", text, flags=re.S).strip()


def _of_sql(file: Path) -> Iterator[str]:
    text = file.read_text("utf-8", errors="replace")
    for name in re.findall(r"^--IMPORT\s+(\S+)", text, re.M):
        for parent in file.parents:
            if (parent / name).is_file() and parent / name != file:
                yield from _of_sql(parent / name)
                break
    yield from statements_of(text)


def _of_three(file: Path) -> Iterator[str]:
    for part in _PARTS:
        each = file.with_name(re.sub(r"query\.sql$", f"{part}.sql", file.name))
        if each.exists():
            yield from statements_of(each.read_text("utf-8", errors="replace"))


def _of_sqllogictest(file: Path, depth: int = 0) -> Iterator[str]:
    """A record is a line that says what is expected, the text, and after `----` the result."""
    text = file.read_text("utf-8", errors="replace")
    for record in re.split(r"\n[ \t]*\n", text):
        lines = [line for line in record.splitlines() if not line.startswith("#")]
        while lines and re.match(r"(skipif|onlyif|mode|control|require|load|foreach|endloop)\b", lines[0]):
            lines.pop(0)
        for line in lines:
            if (included := re.match(r"include\s+(\S+)", line)) and depth < 4:
                for other in sorted(file.parent.glob(included[1])):
                    yield from _of_sqllogictest(other, depth + 1)
        if not lines or not re.match(r"(statement\s+(ok|count)|query\b|simple\b)", lines[0]):
            continue
        if re.match(r"query\s+error", lines[0]):
            continue
        body = lines[1:]
        end = next((n for n, line in enumerate(body) if line.strip() == "----"), len(body))
        yield from statements_of("\n".join(body[:end]))


def _of_testdrive(file: Path) -> Iterator[str]:
    """A statement follows `>`, and continues in lines that are indented."""
    statement: list[str] = []
    for line in [*file.read_text("utf-8", errors="replace").splitlines(), ""]:
        if statement and line.startswith((" ", "\t")):
            statement.append(line)
            continue
        if statement:
            yield from statements_of("\n".join(statement))
        statement = [line[1:]] if line.startswith("> ") else []


def _of_documents(file: Path) -> Iterator[str]:
    text = file.read_text("utf-8", errors="replace")
    try:
        found = json.loads(text) if file.suffix == ".json" else list(yaml.safe_load_all(text))
    except (ValueError, yaml.YAMLError):
        return
    for document in _documents(found):
        known = {str(key).lower(): value for key, value in document.items()}
        for names in _KEYS:
            for name in names:
                yield from _texts(known.get(name))


def _documents(found: Any) -> Iterator[dict[Any, Any]]:
    """What has a query, at any depth."""
    if isinstance(found, dict):
        names = {str(key).lower() for key in found}
        if names & set(_KEYS[2]) and any(list(_texts(found[key])) for key in found):
            yield found
        else:
            for each in found.values():
                yield from _documents(each)
    elif isinstance(found, list):
        for each in found:
            yield from _documents(each)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from statements_of(value)
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _of_markdown(file: Path) -> Iterator[str]:
    text = file.read_text("utf-8", errors="replace")
    for block in re.findall(r"^```sql[^\n]*\n(.*?)^```", text, re.M | re.S | re.I):
        yield from statements_of(block)
