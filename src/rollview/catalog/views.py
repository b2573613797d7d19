"""The views in the catalog: their records, the positions of their forward queries, their refreshes."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Any

from sqlalchemy import Connection, Row, Update, delete, func, insert, select, update

from rollview.algebra.net_effect import Range
from rollview.algebra.relation import Table
from rollview.algorithms.effects import ForwardQuery
from rollview.catalog import schema
from rollview.catalog.captured import decode_table, encode_table
from rollview.catalog.database import Database
from rollview.catalog.faults import clear_fault
from rollview.catalog.leases import Lease, fence
from rollview.catalog.records import (
    GIVEN_UP,
    Refresh,
    Span,
    ViewRecord,
)
from rollview.catalog.step_bounds import (
    Condensed,
    Materialized,
    Moved,
    Retained,
    SpanEnded,
    ViewAdded,
    ViewDropped,
)
from rollview.errors import CatalogError, NotRegistered

_view, _position, _refresh = schema.view.c, schema.position.c, schema.refresh.c

_WHOLE_BLOCK = -1
"""Stands for the relation of a forward query that has none; a key cannot hold NULL."""

_REFRESHES_KEPT = 4000
"""Of each view: about an hour if it is refreshed every second. The record is for reading, not for ever."""

_INTERVALS_KEPT = 100
"""Of each forward query: what a picture of its progress shows."""


def read_views(connection: Connection) -> dict[str, ViewRecord]:
    """All views by name."""
    return {row.name: _record(row) for row in connection.execute(select(schema.view).order_by(_view.name))}


def read_view(connection: Connection, view: str) -> ViewRecord:
    """A view by name."""
    row = connection.execute(select(schema.view).where(_view.name == view)).one_or_none()
    if row is None:
        raise _unknown(view)
    return _record(row)


def read_digests(connection: Connection) -> dict[str, str]:
    """The digest of each view's definition: little to read when only a change is of interest."""
    return {row.name: row.digest for row in connection.execute(select(_view.name, _view.digest))}


def read_spans(connection: Connection, view: str) -> list[Span]:
    """A view as it was before each reload, the newest first."""
    own = select(schema.span).where(schema.span.c.name == view).order_by(schema.span.c.generation.desc())
    rows = connection.execute(own)
    return [Span(_record(row), row.upto_csn, row.reason, row.ended_at) for row in rows]


def forget_spans(connection: Connection, view: str, before: float) -> None:
    """Forgets what a view was, of spans that ended before a time and that no consumer is in or before."""
    consumer = schema.consumer.c
    slowest = connection.scalar(select(func.min(consumer.generation)).where(consumer.view_name == view))
    old = delete(schema.span).where(schema.span.c.name == view, schema.span.c.ended_at < before)
    connection.execute(old if slowest is None else old.where(schema.span.c.generation < slowest))


def _record(row: Row[Any]) -> ViewRecord:
    """The record of a row of the view table. Columns that every step changes are not cached."""
    return ViewRecord(
        name=row.name,
        sql=row.sql_text,
        digest=row.digest,
        columns=_columns(row.shown_columns),
        stored=_columns(row.stored_columns),
        loaded_csn=row.loaded_csn,
        oldest_csn=row.oldest_csn,
        materialized_csn=row.materialized_csn,
        lake_version=row.lake_version,
        state_version=row.state_version,
        generation=row.generation,
        delta_version=row.delta_version,
        tables=_tables(row.read_tables),
        histories=json.loads(row.histories),
        policy=row.policy,
        types=_types(row.expression_types),
    )


def read_positions(connection: Connection, view: str) -> dict[ForwardQuery, int]:
    """How far each forward query of a view has come; none for an unknown view."""
    ordered = select(schema.position).where(_position.view_name == view)
    rows = connection.execute(ordered.order_by(_position.block, _position.relation))
    return {_query(row): row.csn for row in rows}


def read_all_positions(connection: Connection) -> dict[str, dict[ForwardQuery, int]]:
    """The same of every view that has any."""
    found: dict[str, dict[ForwardQuery, int]] = {}
    ordered = select(schema.position).order_by(_position.block, _position.relation)
    for row in connection.execute(ordered):
        found.setdefault(row.view_name, {})[_query(row)] = row.csn
    return found


def _query(row: Row[Any]) -> ForwardQuery:
    return ForwardQuery(row.view_name, row.block, None if row.relation == _WHOLE_BLOCK else row.relation)


def read_control(connection: Connection, view: str) -> str:
    """The state that an algorithm stored with its last delta; empty if none."""
    own = select(schema.control.c.record).where(schema.control.c.view_name == view)
    return connection.scalar(own) or ""


def high_water(connection: Connection, view: str) -> int:
    """The csn up to which a view's delta is complete: the least position, or what is materialized."""
    materialized = connection.scalar(select(_view.materialized_csn).where(_view.name == view))
    if materialized is None:
        raise _unknown(view)
    return min(read_positions(connection, view).values(), default=materialized)


def read_refreshes(connection: Connection, view: str, limit: int, kinds: Collection[str]) -> list[Refresh]:
    """The last refreshes of a view, of some kinds or all, the newest first."""
    newest = select(schema.refresh).where(_refresh.view_name == view).limit(limit)
    if kinds:
        newest = newest.where(_refresh.kind.in_(kinds))
    rows = connection.execute(newest.order_by(_refresh.step.desc(), _refresh.ordinal.desc()))
    return [refresh_of(row) for row in rows]


def refresh_of(row: Row[Any]) -> Refresh:
    """The refresh that a row describes."""
    return Refresh(
        view=row.view_name,
        kind=row.kind,
        from_csn=row.from_csn,
        to_csn=row.to_csn,
        rows=row.changed,
        seconds=row.seconds,
        reason=row.reason,
        finished_at=row.finished_at,
    )


def add_view(connection: Connection, effect: ViewAdded) -> None:
    """A new view with its positions; refuses a name that is taken."""
    record = effect.record
    if connection.scalar(select(_view.name).where(_view.name == record.name)) is not None:
        raise CatalogError(
            f"view {record.name} already exists",
            subject=record.name,
            hint="drop it first; both may be effects of one step",
        )
    connection.execute(
        insert(schema.view).values(
            name=record.name,
            sql_text=record.sql,
            digest=record.digest,
            shown_columns=json.dumps(record.columns),
            stored_columns=json.dumps(record.stored),
            loaded_csn=record.loaded_csn,
            oldest_csn=record.oldest_csn,
            materialized_csn=record.materialized_csn,
            lake_version=record.lake_version,
            state_version=record.state_version,
            generation=record.generation,
            delta_version=record.delta_version,
            read_tables=json.dumps([encode_table(table) for table in record.tables]),
            histories=json.dumps(dict(record.histories)),
            policy=record.policy,
            expression_types=json.dumps(record.types),
        )
    )
    for query, csn in effect.positions.items():
        _require_own(record.name, query)
        connection.execute(insert(schema.position).values(**_key(query), csn=csn))


def drop_view(connection: Connection, effect: ViewDropped) -> None:
    """Forgets a view and all that belongs to it."""
    _take_away(connection, effect.name)
    for table in (schema.refresh, schema.condensed, schema.consumer, schema.verification):
        connection.execute(delete(table).where(table.c.view_name == effect.name))
    forget_spans(connection, effect.name, inf)


def end_span(connection: Connection, effect: SpanEnded, now: float) -> None:
    """Sets aside what is known of a view, which is about to be added again."""
    ended = {"upto_csn": high_water(connection, effect.view), "reason": effect.reason, "ended_at": now}
    row = connection.execute(select(schema.view).where(_view.name == effect.view)).mappings().one()
    connection.execute(insert(schema.span).values(**row, **ended))
    _take_away(connection, effect.view)


def freeze(connection: Connection, name: str) -> None:
    """Keeps only the content of a view: it can be read, and has to be loaded before it continues."""
    shown = connection.scalar(select(_view.materialized_csn).where(_view.name == name))
    kept = {"oldest_csn": shown, "histories": json.dumps({"": GIVEN_UP})}
    connection.execute(update(schema.view).where(_view.name == name).values(**kept))
    connection.execute(update(schema.position).where(_position.view_name == name).values(csn=shown))


def _take_away(connection: Connection, name: str) -> None:
    if connection.execute(delete(schema.view).where(_view.name == name)).rowcount == 0:
        raise _unknown(name)
    costs = (schema.work, schema.cost, schema.measured_cost, schema.choice, schema.lookup)
    for table in (schema.position, schema.control, *costs, schema.interval):
        connection.execute(delete(table).where(table.c.view_name == name))
    clear_fault(connection, "view", name)


def move(connection: Connection, effect: Moved, now: float) -> None:
    """Moves positions forward."""
    known = read_positions(connection, effect.view)
    for query, csn in effect.moves:
        _require_own(effect.view, query)
        if query not in known:
            raise CatalogError(
                f"view {effect.view} has no forward query {tuple(query)[1:]}",
                subject=effect.view,
                hint="a view's forward queries are named when it is added",
            )
        _require_forward(f"the position of {tuple(query)}", known[query], csn)
        if csn > known[query]:
            _note_interval(connection, query, Range(known[query], csn), now)
        known[query] = csn
        at = [schema.position.c[name] == value for name, value in _key(query).items()]
        connection.execute(update(schema.position).where(*at).values(csn=csn))
    control = schema.control
    connection.execute(delete(control).where(control.c.view_name == effect.view))
    if effect.control:
        connection.execute(insert(control).values(view_name=effect.view, record=effect.control))
    if effect.delta_version:
        _change(connection, effect.view, update(schema.view).values(delta_version=effect.delta_version))


def _note_interval(connection: Connection, query: ForwardQuery, interval: Range, now: float) -> None:
    """Remembers what a forward query did; of its intervals only the newest are kept."""
    own = schema.interval
    row = {**_key(query), "after_csn": interval.after, "upto_csn": interval.upto, "finished_at": now}
    of_query = [own.c[name] == value for name, value in _key(query).items()]
    # A view that was given up goes back to what it shows.
    connection.execute(delete(own).where(*of_query, own.c.upto_csn > interval.after))
    connection.execute(insert(own).values(**row))
    newest = select(own.c.upto_csn).where(*of_query).order_by(own.c.upto_csn.desc())
    oldest = connection.scalar(newest.offset(_INTERVALS_KEPT).limit(1))
    if oldest is not None:
        connection.execute(delete(own).where(*of_query, own.c.upto_csn <= oldest))


def materialize(connection: Connection, effect: Materialized) -> None:
    """Notes which csn is stored, and which versions of the lake tables these are."""
    known = connection.scalar(select(_view.materialized_csn).where(_view.name == effect.view))
    _require_forward(f"the materialization time of view {effect.view}", known, effect.csn)
    _change(
        connection,
        effect.view,
        update(schema.view).values(
            materialized_csn=effect.csn, lake_version=effect.lake_version, state_version=effect.state_version
        ),
    )


def redefine(connection: Connection, name: str, sql: str, digest: str, policy: str) -> None:
    """Notes other words for the same definition."""
    _change(connection, name, update(schema.view).values(sql_text=sql, digest=digest, policy=policy))


def retain(connection: Connection, effect: Retained) -> None:
    """Notes the oldest csn that can be read."""
    known = connection.scalar(select(_view.oldest_csn).where(_view.name == effect.view))
    _require_forward(f"the oldest csn of view {effect.view}", known, effect.oldest_csn)
    _change(connection, effect.view, update(schema.view).values(oldest_csn=effect.oldest_csn))


def note_condensed(connection: Connection, effect: Condensed) -> None:
    """Notes that no state strictly inside the range can be read any more; smaller ranges are swallowed."""
    table = schema.condensed
    inside = [table.c.after_csn >= effect.after, table.c.upto_csn <= effect.upto]
    connection.execute(delete(table).where(table.c.view_name == effect.view, *inside))
    row = {"view_name": effect.view, "after_csn": effect.after, "upto_csn": effect.upto}
    connection.execute(insert(table).values(**row))


def read_condensed(connection: Connection, view: str) -> list[Range]:
    """The condensed ranges of a view, in order."""
    table = schema.condensed
    ranges = select(table.c.after_csn, table.c.upto_csn).where(table.c.view_name == view)
    return [Range(after, upto) for after, upto in connection.execute(ranges.order_by(table.c.after_csn))]


def note_refresh(connection: Connection, refresh: Refresh, step: int, ordinal: int) -> None:
    """Adds to the view's record of refreshes, of which only the newest are kept."""
    connection.execute(
        insert(schema.refresh).values(
            step=step,
            ordinal=ordinal,
            view_name=refresh.view,
            kind=refresh.kind,
            from_csn=refresh.from_csn,
            to_csn=refresh.to_csn,
            changed=refresh.rows,
            seconds=refresh.seconds,
            reason=refresh.reason,
            finished_at=refresh.finished_at,
        )
    )
    of_view = select(_refresh.step).where(_refresh.view_name == refresh.view)
    oldest = connection.scalar(of_view.order_by(_refresh.step.desc()).offset(_REFRESHES_KEPT).limit(1))
    if oldest is not None:
        # The total cost of a view is needed long after.
        full = of_view.where(_refresh.kind != "incremental").order_by(_refresh.step.desc()).limit(1)
        kept = connection.scalar(full) or 0
        is_old = (_refresh.step <= oldest, _refresh.step != kept)
        old = delete(schema.refresh).where(_refresh.view_name == refresh.view, *is_old)
        connection.execute(old)


def _change(connection: Connection, view: str, statement: Update) -> None:
    if connection.execute(statement.where(_view.name == view)).rowcount == 0:
        raise _unknown(view)


def _require_forward(what: str, known: int | None, csn: int) -> None:
    if known is not None and csn < known:
        raise CatalogError(
            f"{what} cannot go back from csn {known} to csn {csn}",
            subject=what,
            hint="the same piece of work may have been done twice with different bounds",
        )


def _require_own(view: str, query: ForwardQuery) -> None:
    if query.view != view:
        raise CatalogError(f"a forward query of view {query.view} cannot move view {view}", subject=view)


def _key(query: ForwardQuery) -> dict[str, str | int]:
    relation = _WHOLE_BLOCK if query.relation is None else query.relation
    return {"view_name": query.view, "block": query.block, "relation": relation}


@lru_cache(maxsize=4096)
def _columns(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, kind) for name, kind in json.loads(text))


@lru_cache(maxsize=4096)
def _tables(text: str) -> tuple[Table, ...]:
    return tuple(map(decode_table, json.loads(text)))


@lru_cache(maxsize=4096)
def _types(text: str) -> Mapping[str, Mapping[str, str]]:
    types: Mapping[str, Mapping[str, str]] = json.loads(text)
    return types


def _unknown(view: str) -> NotRegistered:
    return NotRegistered(
        f"view {view} is not in the catalog", subject=view, hint="load it first with `rollview setup`"
    )


@dataclass(frozen=True)
class Views:
    """The loaded views, and how far each has come."""

    database: Database

    def all(self) -> dict[str, ViewRecord]:
        """The loaded views by name."""
        with self.database.reading() as connection:
            return read_views(connection)

    def get(self, name: str) -> ViewRecord:
        with self.database.reading() as connection:
            return read_view(connection, name)

    def digests(self) -> dict[str, str]:
        """The digests of the definitions of the loaded views, by name."""
        with self.database.reading() as connection:
            return read_digests(connection)

    def redefine(self, lease: Lease, view: str, sql: str, digest: str, policy: str) -> None:
        """The definition of a view is written in other words, or with other properties."""
        with self.database.writing() as connection:
            fence(connection, lease)
            redefine(connection, view, sql, digest, policy)

    def spans(self, view: str) -> list[Span]:
        """A view as it was before each reload, the newest first."""
        with self.database.reading() as connection:
            return read_spans(connection, view)

    def forget_spans(self, view: str, before: float) -> None:
        """Forgets what a view was, of spans that ended before a time."""
        with self.database.writing() as connection:
            forget_spans(connection, view, before)

    def positions(self, view: str) -> dict[ForwardQuery, int]:
        """How far each forward query of a view has come."""
        with self.database.reading() as connection:
            return read_positions(connection, view)

    def control(self, view: str) -> str:
        """The state that the algorithm of a view stored with its last delta; empty if none."""
        with self.database.reading() as connection:
            return read_control(connection, view)

    def high_water(self, view: str) -> int:
        """The csn up to which a view's delta is complete; without positions, what is materialized."""
        with self.database.reading() as connection:
            return high_water(connection, view)

    def refreshes(self, view: str, limit: int = 10, kinds: Collection[str] = ()) -> list[Refresh]:
        """The last refreshes of a view, of some kinds or all, the newest first."""
        with self.database.reading() as connection:
            return read_refreshes(connection, view, limit, kinds)

    def condensed(self, view: str) -> list[Range]:
        """The ranges (after, upto] of a view's delta that were condensed: nothing strictly inside is left."""
        with self.database.reading() as connection:
            return read_condensed(connection, view)
