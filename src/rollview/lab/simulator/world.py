"""A world: everything that is fixed before a run begins.

Tables at sources, views over them, the rows they start with, and for every source the transactions it
will commit, in its own order. When each commit happens, relative to all else, is the schedule's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rollview.algebra.expression import Row
from rollview.algebra.history import Change, Transaction
from rollview.algebra.relation import ForeignKey, Table
from rollview.algebra.view import View
from rollview.algorithms.algorithm import Scenario
from rollview.errors import WorldError
from rollview.planning import parse_view


@dataclass(frozen=True)
class World:
    """Tables, views, first rows, and each source's transactions.

    A source in `snapshots` answers from snapshots: what is visible need not be a prefix of its commits.
    """

    tables: tuple[Table, ...]
    views: tuple[View, ...]
    initial: Mapping[str, tuple[Row, ...]]
    scripts: Mapping[str, tuple[Transaction, ...]]
    scenario: Scenario
    snapshots: frozenset[str] = frozenset()

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources' names, in order of their first table."""
        return tuple(dict.fromkeys(table.source for table in self.tables))


State = dict[str, dict[Row, int]]
"""For every table (`source.table`) its rows with counts, none of which is 0."""


def first_state(initial: Mapping[str, Iterable[Row]]) -> State:
    """The tables as they begin."""
    return {name: dict(Counter(rows)) for name, rows in initial.items()}


def make_changes(state: State, changes: Iterable[Change]) -> None:
    """Changes rows of tables, as a database does."""
    for change in changes:
        rows = state[change.table]
        total = rows.get(change.row, 0) + change.count
        if total:
            rows[change.row] = total
        else:
            del rows[change.row]


def to_json(world: World) -> dict[str, Any]:
    """The world as the trace's `world` record has it, scripts included so that it can be run again."""
    return {
        "scenario": str(world.scenario),
        "relations": [
            {
                "source": table.source,
                "name": table.name,
                "columns": list(table.columns),
                "key": list(table.key),
                "foreign_keys": [
                    {"columns": list(key.columns), "references": key.references} for key in table.foreign_keys
                ],
            }
            for table in world.tables
        ],
        "views": [{"name": view.name, "sql": view.sql} for view in world.views],
        "initial": {name: [list(row) for row in rows] for name, rows in world.initial.items()},
        "snapshot_sources": sorted(world.snapshots),
        "scripts": {
            source: [transaction_to_json(transaction) for transaction in script]
            for source, script in world.scripts.items()
        },
    }


def transaction_to_json(transaction: Transaction) -> dict[str, Any]:
    """One source's part of a transaction."""
    return {
        "global_id": transaction.global_id or None,
        "participants": list(transaction.participants),
        "changes": [[change.table, list(change.row), change.count] for change in transaction.changes],
    }


def from_json(record: Mapping[str, Any]) -> World:
    """The world that a `world` record describes; refuses one that cannot exist."""
    try:
        tables = tuple(
            Table(
                item["source"],
                item["name"],
                tuple(item["columns"]),
                tuple(item.get("key", ())),
                tuple(
                    ForeignKey(tuple(key["columns"]), key["references"])
                    for key in item.get("foreign_keys", ())
                ),
            )
            for item in record["relations"]
        )
        initial = {
            table.qualified: tuple(tuple(row) for row in record.get("initial", {}).get(table.qualified, ()))
            for table in tables
        }
        scripts = {
            source: tuple(
                _transaction(source, version, item)
                for version, item in enumerate(record.get("scripts", {}).get(source, ()), 1)
            )
            for source in dict.fromkeys(table.source for table in tables)
        }
        unknown = sorted(set(record.get("initial", {})) - set(initial))
        unknown += sorted(set(record.get("scripts", {})) - set(scripts))
        scenario = Scenario(record.get("scenario", Scenario.SOURCE_LOCAL))
        snapshots = frozenset(record.get("snapshot_sources", ()))
        texts = [(item["name"], item["sql"]) for item in record["views"]]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise WorldError(
            f"the world is malformed: {type(error).__name__}: {error}",
            hint="docs/reference/trace.md describes the record; `rollview simulate --trace FILE` writes one",
        ) from error
    if unknown:
        raise WorldError(f"the world has rows or transactions for unknown {', '.join(unknown)}")
    views = tuple(parse_view(sql, tables, name) for name, sql in texts)
    world = World(tables, views, initial, scripts, scenario, snapshots)
    validate(world)
    return world


def schedule_of(record: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The steps that a `world` record gives, one after the other; None if it leaves them open."""
    steps = record.get("schedule")
    if steps is None:
        return None
    if not isinstance(steps, list) or not all(isinstance(step, str) for step in steps):
        raise WorldError(
            "the schedule of the world is not an array of steps",
            hint='steps are texts such as "commit x" or "deliver y 1"; see docs/reference/trace.md',
        )
    return tuple(steps)


def _transaction(source: str, version: int, item: Mapping[str, Any]) -> Transaction:
    changes = tuple(Change(table, tuple(row), count) for table, row, count in item["changes"])
    return Transaction(
        source,
        version,
        changes,
        global_id=item.get("global_id") or "",
        participants=tuple(item.get("participants", ())),
    )


def validate(world: World) -> None:
    """Replays every script: rows have the right width, keys are keys, only present rows are deleted."""
    if not world.views:
        raise WorldError("the world has no view")
    for view in world.views:
        if view.stages:
            raise WorldError(
                f"view {view.name} has an operator below another one, which the simulator does not run",
                subject=view.name,
                hint="simulate the inner query and the outer one as views of their own",
            )
    tables = {table.qualified: table for table in world.tables}
    for table in world.tables:
        missing = [name for name in table.key if name not in table.columns]
        if missing:
            raise WorldError(
                f"the key of {table.qualified} names {', '.join(missing)}, which is not one of its columns",
                subject=table.qualified,
                hint=f"its columns are {', '.join(table.columns)}",
            )
    state: dict[str, dict[Row, int]] = {}
    for name, rows in world.initial.items():
        state[name] = {}
        for row in rows:
            _apply(tables[name], state[name], row, 1)
        check_key(tables[name], state[name])
    for source, script in world.scripts.items():
        for transaction in script:
            for change in transaction.changes:
                if change.table not in tables or tables[change.table].source != source:
                    raise WorldError(
                        f"a transaction of {source} changes {change.table}", subject=change.table
                    )
                _apply(tables[change.table], state[change.table], change.row, change.count)
            for name in {change.table for change in transaction.changes}:
                check_key(tables[name], state[name])


def _apply(table: Table, rows: dict[Row, int], row: Row, count: int) -> None:
    if len(row) != len(table.columns):
        raise WorldError(
            f"{table.qualified} has columns {', '.join(table.columns)}, but a row {list(row)}",
            subject=table.qualified,
        )
    rows[row] = rows.get(row, 0) + count
    if rows[row] < 0:
        raise WorldError(
            f"{list(row)} is deleted from {table.qualified}, which does not contain it",
            subject=table.qualified,
        )
    if not rows[row]:
        del rows[row]


def check_key(table: Table, rows: Mapping[Row, int]) -> None:
    """A declared key has no NULL and no value twice."""
    if not table.key:
        return
    positions = [table.columns.index(name) for name in table.key]
    seen: set[Row] = set()
    for row, count in rows.items():
        value = tuple(row[position] for position in positions)
        if count > 1 or value in seen or None in value:
            raise WorldError(
                f"({', '.join(table.key)}) is not a key of {table.qualified}: "
                f"{list(value)} {'is NULL' if None in value else 'occurs twice'}",
                subject=table.qualified,
                hint="declare a key whose values are unique, or none",
            )
        seen.add(value)
