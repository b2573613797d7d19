"""Names as a pipeline writes them: what its catalog and database are in them means its own views and tables.

A pipeline's files name a view `v` also `database.v` or `catalog.database.v`, and a table of the database
without it. In rollview a view has one word, and a table that of its source in front: the texts are brought to
that form, and their places stay the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from sqlglot import exp

from rollview.sql.names.ctes import is_cte
from rollview.sql.statement import query_of
from rollview.sql.text.declaration import declaration_of

_Edit = tuple[int, int, str]


@dataclass(frozen=True)
class Namespace:
    """The catalog and the database of a pipeline, empty if it has none, and the sources of the project."""

    catalog: str = ""
    database: str = ""
    sources: frozenset[str] = frozenset()

    def is_own(self, qualifier: tuple[str, ...]) -> bool:
        """Whether a qualifier is the database, with or without the catalog."""
        own = (self.catalog.lower(), self.database.lower())
        return bool(self.database) and (qualifier == own[1:] or (bool(own[0]) and qualifier == own))

    def has_source(self, name: str) -> bool:
        return name.lower() in {source.lower() for source in self.sources}


def without_own_qualifier(sql: str, namespace: Namespace) -> str:
    """The text in which the view is created under one word, if its qualifier is that of the pipeline."""
    declaration = declaration_of(sql)
    if declaration is None or not declaration.qualifier:
        return sql
    if not namespace.is_own(tuple(part.lower() for part in declaration.qualifier)):
        return sql
    return _edited(sql, [_blank(declaration.name_at, declaration.own_name_at)])


def in_namespace(sql: str, namespace: Namespace, views: Collection[str]) -> str:
    """The text with names as the project has them; `views` are those that there are, in lower case."""
    if not (namespace.catalog or namespace.database):
        return sql
    query = query_of(sql)
    edits: set[_Edit] = set()
    shortened: dict[tuple[str, ...], int] = {}
    for table in query.find_all(exp.Table):
        if is_cte(table) or isinstance(table.this, exp.Func) or not table.parts:
            continue
        names = tuple(part.name.lower() for part in table.parts)
        if gone := _needless(names, namespace, views):
            shortened[names] = gone
            edits.add(_blank(_start(table.parts[0]), _start(table.parts[gone])))
        elif len(names) == 1 and names[0] not in views and namespace.has_source(namespace.database):
            start = _start(table.parts[0])
            edits.add((start, start, f"{namespace.database}."))
    edits.update(_columns(query, shortened))
    return _edited(sql, sorted(edits, reverse=True))


def _needless(names: tuple[str, ...], namespace: Namespace, views: Collection[str]) -> int:
    """How many words in front of a name the project does without."""
    if names[-1] in views and namespace.is_own(names[:-1]):
        return len(names) - 1
    catalog = namespace.catalog.lower()
    is_in_catalog = len(names) > 2 and names[0] == catalog and not namespace.has_source(catalog)
    return 1 if is_in_catalog and namespace.has_source(names[1]) else 0


def _columns(query: exp.Expr, shortened: dict[tuple[str, ...], int]) -> Iterator[_Edit]:
    """The same for columns that are called with the whole name of their table."""
    for column in query.find_all(exp.Column):
        names = tuple(part.name.lower() for part in column.parts)
        alike = [gone for table, gone in shortened.items() if names[: len(table)] == table != names]
        if gone := max(alike, default=0):
            yield _blank(_start(column.parts[0]), _start(column.parts[gone]))


def _blank(start: int, end: int) -> _Edit:
    return start, end, " " * (end - start)


def _edited(sql: str, edits: list[_Edit]) -> str:
    for start, end, text in edits:
        sql = sql[:start] + text + sql[end:]
    return sql


def _start(identifier: exp.Expr) -> int:
    return int(identifier.meta["start"])
