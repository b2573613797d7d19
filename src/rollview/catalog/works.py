"""What maintaining views has cost: by view, by algorithm, by kind of work, and by the tables asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace

from sqlalchemy import Connection, delete, insert, select, update

from rollview.catalog import schema
from rollview.catalog.database import Database
from rollview.catalog.leases import Lease, fence
from rollview.catalog.records import (
    AlgorithmChoice,
    AlgorithmCost,
    CostLine,
    Lookups,
    Measured,
    Work,
)
from rollview.catalog.step_bounds import Worked

_view = schema.view.c

_RECENT_KEPT = 8
"""Of each algorithm's steps that are compared: enough for a median that one slow step does not move."""


@dataclass(frozen=True)
class Works:
    """The work of all views."""

    database: Database

    def of_view(self, name: str) -> Work:
        """The cost of a view so far."""
        with self.database.reading() as connection:
            return _read(connection, name)

    def by_algorithm(self, name: str) -> dict[str, AlgorithmCost]:
        """The cost of a view so far under each algorithm that was at work."""
        with self.database.reading() as connection:
            return read_costs(connection, name)

    def costs(self, name: str) -> dict[str, CostLine]:
        """What each kind of work on a view has taken since it was loaded."""
        with self.database.reading() as connection:
            return read_measured_costs(connection, name)

    def lookups(self, name: str) -> list[Lookups]:
        """The sub-queries of a view since it was loaded, by the tables that they asked for."""
        with self.database.reading() as connection:
            return read_lookups(connection, name)

    def note_cost(self, name: str, kind: str, rows: float, seconds: float) -> None:
        """Adds a sample to what a kind of work on a view takes; not of a view that is gone."""
        with self.database.writing() as connection:
            if connection.scalar(select(_view.name).where(_view.name == name)) is not None:
                add_measured_cost(connection, name, kind, rows, seconds)

    def choices(self) -> dict[str, AlgorithmChoice]:
        """The algorithms that were chosen by measured costs, by view."""
        with self.database.reading() as connection:
            rows = connection.execute(select(schema.choice)).all()
        return {row.view_name: AlgorithmChoice(*row[1:]) for row in rows}

    def choose(self, lease: Lease, name: str, choice: AlgorithmChoice, *, begins_round: bool) -> None:
        """Notes the algorithm that steps of a view have from now on, or that all are measured again."""
        with self.database.writing() as connection:
            fence(connection, lease)
            connection.execute(delete(schema.choice).where(schema.choice.c.view_name == name))
            connection.execute(insert(schema.choice).values(view_name=name, **asdict(choice)))
            if begins_round:
                old = update(schema.cost).where(schema.cost.c.view_name == name)
                connection.execute(old.values(recent="[]"))

    def note_measured(self, lease: Lease, name: str, algorithm: str, step: Measured) -> None:
        """Keeps the costs of a step, which `Worked` has added up, beside those of other algorithms."""
        with self.database.writing() as connection:
            fence(connection, lease)
            known = read_costs(connection, name).get(algorithm, AlgorithmCost(algorithm))
            _put_cost(connection, name, replace(known, recent=(*known.recent, step)[-_RECENT_KEPT:]))

    def note_failure(self, lease: Lease, name: str, algorithm: str, message: str) -> None:
        """Counts a step of a view in which an algorithm has failed."""
        with self.database.writing() as connection:
            fence(connection, lease)
            known = read_costs(connection, name).get(algorithm, AlgorithmCost(algorithm))
            _put_cost(connection, name, replace(known, failures=known.failures + 1, failure=message))


def read_measured_costs(connection: Connection, view: str) -> dict[str, CostLine]:
    """What each kind of work on a view has taken."""
    own = (
        select(schema.measured_cost)
        .where(schema.measured_cost.c.view_name == view)
        .order_by(schema.measured_cost.c.kind)
    )
    names = [each.name for each in fields(CostLine)]
    return {
        row["kind"]: CostLine(*(row[name] for name in names)) for row in connection.execute(own).mappings()
    }


def add_measured_cost(connection: Connection, view: str, kind: str, rows: float, seconds: float) -> None:
    """Adds a sample to what a kind of work on a view takes."""
    known = read_measured_costs(connection, view).get(kind, CostLine()).with_sample(rows, seconds)
    own = (schema.measured_cost.c.view_name == view, schema.measured_cost.c.kind == kind)
    connection.execute(delete(schema.measured_cost).where(*own))
    connection.execute(insert(schema.measured_cost).values(view_name=view, kind=kind, **asdict(known)))


def read_lookups(connection: Connection, view: str) -> list[Lookups]:
    """The sub-queries of a view by the tables that they asked for."""
    own = select(schema.lookup).where(schema.lookup.c.view_name == view).order_by(schema.lookup.c.tables)
    names = [each.name for each in fields(Lookups) if each.name != "tables"]
    return [
        Lookups(tuple(json.loads(row["tables"])), *(row[name] for name in names))
        for row in connection.execute(own).mappings()
    ]


def _add_lookups(connection: Connection, view: str, step: Sequence[Lookups]) -> None:
    known = {each.tables: each for each in read_lookups(connection, view)}
    for each in step:
        total = known.get(each.tables, Lookups(each.tables)).plus(each)
        key = json.dumps(each.tables)
        own = (schema.lookup.c.view_name == view, schema.lookup.c.tables == key)
        connection.execute(delete(schema.lookup).where(*own))
        connection.execute(insert(schema.lookup).values(view_name=view, **asdict(total) | {"tables": key}))


def add_work(connection: Connection, effect: Worked) -> None:
    """Adds what a step has cost."""
    known, own = _read(connection, effect.view), schema.work.c.view_name == effect.view
    total = {name: getattr(known, name) + value for name, value in asdict(effect.work).items()}
    connection.execute(delete(schema.work).where(own))
    connection.execute(insert(schema.work).values(view_name=effect.view, **total))
    _add_lookups(connection, effect.view, effect.lookups)

    if effect.algorithm:
        _add_cost(connection, effect)


def _add_cost(connection: Connection, effect: Worked) -> None:
    """Adds what a step has cost to the costs of its algorithm."""
    work, costs = effect.work, read_costs(connection, effect.view)
    known = costs.get(effect.algorithm, AlgorithmCost(effect.algorithm))
    step = Measured(effect.transactions, work.lookups, work.rows_found, effect.seconds)
    sums = {name: getattr(known, name) + value for name, value in asdict(step).items()}
    _put_cost(connection, effect.view, replace(known, **sums, steps=known.steps + work.steps))


def _put_cost(connection: Connection, view: str, cost: AlgorithmCost) -> None:
    own = (schema.cost.c.view_name == view, schema.cost.c.algorithm == cost.algorithm)
    connection.execute(delete(schema.cost).where(*own))
    values = asdict(cost)
    recent = json.dumps(values.pop("recent"))
    connection.execute(insert(schema.cost).values(view_name=view, recent=recent, **values))


def read_costs(connection: Connection, view: str) -> dict[str, AlgorithmCost]:
    """What each algorithm that was at work has cost a view."""
    columns = [schema.cost.c[each.name] for each in fields(AlgorithmCost)]
    found = select(*columns).where(schema.cost.c.view_name == view).order_by(schema.cost.c.algorithm)
    rows = connection.execute(found).mappings()
    return {row["algorithm"]: AlgorithmCost(**{**row, "recent": _measured(row["recent"])}) for row in rows}


def _measured(text: str) -> tuple[Measured, ...]:
    return tuple(Measured(**each) for each in json.loads(text))


def _read(connection: Connection, view: str) -> Work:
    columns = [schema.work.c[each.name] for each in fields(Work)]
    row = connection.execute(select(*columns).where(schema.work.c.view_name == view)).one_or_none()
    return Work() if row is None else Work(*row)
