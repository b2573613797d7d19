"""The views as they were set up. The catalog has them: an edited view file changes nothing until `setup`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from rollview.algebra.expression import Expression, to_sql
from rollview.algebra.relation import Table
from rollview.algebra.view import View, is_stage
from rollview.catalog import Catalog, ViewRecord
from rollview.errors import InputError
from rollview.planning import referenced_names
from rollview.views.layout import Layout
from rollview.views.properties import as_table, digest, parse_definition
from rollview.views.view_files import ViewText, in_order


class Views:
    """The catalog's views, parsed again only when their definitions have changed."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._parsed: tuple[dict[str, ViewRecord], dict[str, View]] | None = None
        # What was compared, and at which commit: together, because several threads look.
        self._compared: tuple[object, int | None] = (None, None)
        self._parser = _Parser()

    def all(self) -> dict[str, View]:
        """The views that have been set up, and their stages, dependencies first."""
        return self._definitions()[1]

    @property
    def names(self) -> tuple[str, ...]:
        """The views that users named, dependencies first."""
        return tuple(name for name in self.all() if not is_stage(name))

    def named(self, name: str) -> View:
        """A view by name."""
        views = self.all()
        if name not in views:
            raise unknown_view(name, self.names)
        return views[name]

    def record(self, name: str) -> ViewRecord:
        """The record of a view."""
        self.named(name)
        return self._catalog.views.get(name)

    def base_tables(self, name: str) -> tuple[str, ...]:
        """The base tables that a view is made of, through other views as well."""
        found: set[str] = set()
        for table in self.named(name).tables:
            found.update([table.qualified] if table.source else self.base_tables(table.name))
        return tuple(sorted(found))

    def layout(self, name: str) -> Layout:
        """How a view is stored."""
        return Layout.of_record(self.named(name), self._definitions()[0][name])

    def former(self, record: ViewRecord) -> View:
        """A view as it was when its record was the catalog's."""
        records = self._catalog.views.all()
        of_then = [each.record for name in records for each in self._catalog.views.spans(name)]
        alike = {each.name: each for each in (*records.values(), *of_then) if each.sql == record.sql}
        types = _Recorded(alike | {record.name: record})
        known = {
            name: as_table(view, _Recorded(records).of_stage(view))
            for name, view in self.all().items()
            if name != record.name
        }
        base = {table.qualified: table for table in record.tables}
        return parse_definition(record.sql, known | base, record.name, types)

    def _definitions(self) -> tuple[dict[str, ViewRecord], dict[str, View]]:
        # Read first: a commit after it is looked for the next time.
        parsed, (compared, at), commits = self._parsed, self._compared, self._catalog.commits()
        if parsed is not None and parsed is compared and commits is not None and commits == at:
            return parsed
        if parsed is None or {n: r.digest for n, r in parsed[0].items()} != self._catalog.views.digests():
            records = self._catalog.views.all()
            parsed = self._parsed = (records, self._parser.parse(records, self._catalog.captured.tables()))
        self._compared = (parsed, commits)
        return parsed


class _Recorded:
    """Types as Spark reported them when the views were defined."""

    def __init__(self, records: Mapping[str, ViewRecord]) -> None:
        self._columns = {name: record.columns for name, record in records.items()}
        self._expressions = {part: types for r in records.values() for part, types in r.types.items()}

    def of_stage(self, stage: View) -> tuple[str, ...]:
        """The types of a stored view's columns."""
        return tuple(kind for _, kind in self._columns.get(stage.name, ()))

    def of_expression(self, part: str, expression: Expression, columns: Mapping[str, str]) -> str:  # noqa: ARG002
        return self._expressions.get(part, {}).get(to_sql(expression), "")


class _Asked:
    """Passes questions on, and knows what they were and what the answers."""

    def __init__(self, types: _Recorded) -> None:
        self._types = types
        self._stages: list[tuple[View, tuple[str, ...]]] = []
        self._expressions: list[tuple[str, Expression, Mapping[str, str], str]] = []

    def of_stage(self, stage: View) -> tuple[str, ...]:
        """The types of a stored view's columns."""
        answer = self._types.of_stage(stage)
        self._stages.append((stage, answer))
        return answer

    def of_expression(self, part: str, expression: Expression, columns: Mapping[str, str]) -> str:
        """The type that was recorded."""
        answer = self._types.of_expression(part, expression, columns)
        self._expressions.append((part, expression, columns, answer))
        return answer

    def gives_the_same(self, types: _Recorded) -> bool:
        """Whether the answers would be the same now."""
        return all(types.of_stage(stage) == answer for stage, answer in self._stages) and all(
            types.of_expression(part, expression, columns) == answer
            for part, expression, columns, answer in self._expressions
        )


def unknown_view(name: str, views: Iterable[str]) -> InputError:
    """No such view: says which there are."""
    known = ", ".join(views) or "none is set up yet"
    return InputError(
        f"there is no view `{name}`", subject=name, hint=f"views: {known}; `rollview setup` adds new ones"
    )


class _Parser:
    """Parses definitions, each again only if what it is about has changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[View, _Asked]] = {}

    def parse(self, records: Mapping[str, ViewRecord], tables: Mapping[str, Table]) -> dict[str, View]:
        """The views of the catalog in normal form, dependencies first."""
        views: dict[str, View] = {}
        texts = {
            name: ViewText(Path(f"{name}.sql"), name, r.sql, referenced_names(r.sql))
            for name, r in records.items()
            if not is_stage(name)
        }
        types = _Recorded(records)
        known: dict[str, Table] = {}
        for text in in_order(texts).values():
            view = self._view(text.name, text.sql, known | _base_tables(records[text.name], tables), types)
            views |= {
                part.name: part for part in view.stored_parts if part is view or _is_stored(part, records)
            }
            known[view.name] = as_table(view, types.of_stage(view))
        # While a view is reloaded, or after a setup that died, there are stages of its new definition.
        for name in sorted(records.keys() - views.keys()):
            if name not in views:
                own = known | _base_tables(records[name], tables)
                stage = self._view(name, records[name].sql, own, types)
                views |= {
                    part.name: part for part in stage.parts if part is stage or _is_stored(part, records)
                }
        return views

    def _view(self, name: str, sql: str, tables: Mapping[str, Table], types: _Recorded) -> View:
        if (known := self._known.get(name)) is not None:
            view, asked = known
            is_same = all(tables.get(table.qualified) == table for table in view.named_tables)
            if view.sql == sql.strip() and is_same and asked.gives_the_same(types):
                return view
        asked = _Asked(types)
        view = parse_definition(sql, tables, name, asked)
        self._known[name] = view, asked
        return view


def _is_stored(stage: View, records: Mapping[str, ViewRecord]) -> bool:
    """Whether a stage is stored as the view's text has it."""
    return stage.name in records and records[stage.name].digest == digest(stage)


def _base_tables(record: ViewRecord, tables: Mapping[str, Table]) -> dict[str, Table]:
    """The tables of sources that a view reads: as they are captured now, or as they were if that differs."""
    known = dict(tables)
    for table in record.tables:
        now = tables.get(table.qualified)
        if now is None or (now.columns, now.types) != (table.columns, table.types):
            known[table.qualified] = table
    return known
