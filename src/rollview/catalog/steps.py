"""Steps: first the exact bounds are recorded, then something is written elsewhere, then the step is finished.

After a crash the pending steps say what may or may not have been written. It is written again with the
same bounds under the same id, by which the other side knows a repetition. All effects of a step become
true in the transaction that ends it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from shlex import quote
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from sqlalchemy import Connection, Row, delete, insert, select, update

from rollview.catalog import schema, views, works
from rollview.catalog.captured import read_tables
from rollview.catalog.database import Database
from rollview.catalog.history import end_histories
from rollview.catalog.leases import Lease, fence
from rollview.catalog.sequencing import keep_units
from rollview.catalog.step_bounds import (
    KINDS,
    ApplyStep,
    B,
    CaptureStep,
    Condensed,
    CondenseStep,
    DropStep,
    E,
    LoadStep,
    MaintainStep,
    Materialized,
    Moved,
    PropagateStep,
    Refreshed,
    Retained,
    Sequenced,
    SpanEnded,
    Step,
    StepBounds,
    StepEffect,
    ViewAdded,
    ViewDropped,
    Worked,
)
from rollview.errors import CatalogError, StepRefused
from rollview.version import __version__

# Bounds of steps as JSON and back, in the version that this release writes and in all older ones.
#
# Version 0 is what was written before versions were recorded. Bounds of an older version go through one
# upgrade after the other, each a function from the JSON of a version to that of the next. Whatever cannot
# be read is refused as a whole: a step that was misunderstood would be finished wrongly.


@dataclass(frozen=True)
class Undecodable:
    """The error in the bounds of a step; `is_newer` if a newer release wrote them."""

    reason: str
    is_newer: bool = False


def encode_bounds(bounds: StepBounds[Any]) -> str:
    """The JSON text of bounds: dataclasses become objects, named tuples become lists."""
    return json.dumps(bounds, default=_as_object)


def decode_bounds(kind: str, version: int, text: str) -> StepBounds[Any] | Undecodable:
    """The bounds in a text, or why this release cannot read it."""
    if kind not in KINDS:
        return Undecodable(f"this rollview does not know steps of the kind {kind}", is_newer=True)
    wanted = KINDS[kind]
    if version > wanted.version:
        reason = f"its bounds have version {version}, and this rollview knows only up to {wanted.version}"
        return Undecodable(reason, is_newer=True)
    try:
        value = json.loads(text)
        for each in range(version, wanted.version):
            value = UPGRADES[wanted, each](value)
        bounds: StepBounds[Any] = _decode(wanted, value)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return Undecodable(f"its bounds cannot be decoded: {error!r}")
    return bounds


def _as_object(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


@cache
def _field_types(kind: Any) -> dict[str, Any]:
    """The fields of a dataclass or a named tuple, in order, with their types."""
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else kind._fields
    return {name: hints[name] for name in names}


def _decode(kind: Any, value: Any) -> Any:
    """A JSON value as a value of this type, exactly: nothing may be missing, and nothing left over."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return None if value is None else _decode(arguments[0], value)
    if origin is tuple and type(value) is list:
        return tuple(_decode(arguments[0], each) for each in value)
    if origin is Mapping and type(value) is dict:
        return {name: _decode(arguments[1], each) for name, each in value.items()}
    if isinstance(kind, type) and is_dataclass(kind) and type(value) is dict:
        hints = _field_types(kind)
        if value.keys() == hints.keys():
            return kind(**{name: _decode(hint, value[name]) for name, hint in hints.items()})
    elif isinstance(kind, type) and issubclass(kind, tuple) and type(value) is list:
        hints = _field_types(kind)
        if len(value) == len(hints):
            return kind(*(_decode(hint, each) for hint, each in zip(hints.values(), value, strict=True)))
    elif kind is float and type(value) is int:
        return float(value)
    elif type(value) is kind:
        return value
    raise ValueError(f"{json.dumps(value)[:200]} is not a valid {getattr(kind, '__name__', kind)}")


def _name_source_txids(bounds: dict[str, Any]) -> dict[str, Any]:
    """A transaction's id at its source was called its mark."""
    for site in bounds["sites"].values():
        site["source_txids"] = site.pop("marks")
    return bounds


def _only_number(bounds: dict[str, Any]) -> dict[str, Any]:
    """The version is recorded from here on; the fields are the same."""
    return bounds


def _without_truncation(bounds: dict[str, Any]) -> dict[str, Any]:
    """No step of a view emptied it as a whole."""
    return bounds | {"emptied": 0}


def _without_recomputing(bounds: dict[str, Any]) -> dict[str, Any]:
    """No step of a view computed it as a whole."""
    return bounds | {"recomputed": 0, "reason": ""}


def _without_rolling(bounds: dict[str, Any]) -> dict[str, Any]:
    """No view was propagated by rolling."""
    return bounds | {"executed": 0}


def _by_one_algorithm(bounds: dict[str, Any]) -> dict[str, Any]:
    """No step was made by another algorithm than the last one."""
    return bounds | {"algorithm": ""}


Upgrade = Callable[[dict[str, Any]], dict[str, Any]]

UPGRADES: Mapping[tuple[type[StepBounds[Any]], int], Upgrade] = {
    (CaptureStep, 0): _name_source_txids,
    (PropagateStep, 0): _only_number,
    (PropagateStep, 1): _without_truncation,
    (PropagateStep, 2): _without_recomputing,
    (PropagateStep, 3): _without_rolling,
    (PropagateStep, 4): _by_one_algorithm,
    (ApplyStep, 0): _only_number,
    (LoadStep, 0): _only_number,
    (DropStep, 0): _only_number,
    (CondenseStep, 0): _only_number,
    (MaintainStep, 0): _only_number,
}
"""For each kind and version before its present one, how the next version is made of it."""


@dataclass(frozen=True)
class UnreadableStep:
    """A pending step that this release cannot finish, and why.

    `views` are the loaded views that have to be reloaded before it can be given up; where `concerns_all`,
    what was captured has to go with them.
    """

    id: int
    kind: str
    subject: str
    views: tuple[str, ...]
    concerns_all: bool
    refusal: StepRefused


def begin_step(connection: Connection, subject: str, bounds: B, now: float) -> Step[B]:
    """Records a step with the next id."""
    known = schema.catalog.c.last_step
    # Adding first locks the row, so that no one else can read the same number.
    connection.execute(update(schema.catalog).values(last_step=known + 1))
    number = connection.scalars(select(known)).one()
    connection.execute(
        insert(schema.step).values(
            id=number,
            kind=bounds.kind,
            subject=subject,
            bounds=encode_bounds(bounds),
            started=now,
            version=bounds.version,
            written_by=__version__,
        )
    )
    return Step(number, subject, bounds, now)


def pending_steps(connection: Connection, kind: type[B], subject: str | None) -> list[Step[B]]:
    """Steps of a kind that were begun and not finished, in the order they were begun.

    A step of an unknown kind may have done anything to its subject, so nobody passes it by.
    """
    column = schema.step.c
    found = select(schema.step).where((column.kind == kind.kind) | column.kind.not_in(list(KINDS)))
    if subject is not None:
        found = found.where(column.subject == subject)
    steps = []
    for row in connection.execute(found.order_by(column.id)).all():
        step = _read_step(connection, row)
        if isinstance(step, UnreadableStep):
            raise step.refusal
        assert isinstance(step.bounds, kind)
        steps.append(Step(step.id, step.subject, step.bounds, step.started))
    return steps


def unfinished_steps(connection: Connection) -> list[Step[StepBounds[Any]] | UnreadableStep]:
    """All steps that were begun and not finished, in the order they were begun."""
    found = select(schema.step).order_by(schema.step.c.id)
    return [_read_step(connection, row) for row in connection.execute(found).all()]


def _read_step(connection: Connection, row: Row[Any]) -> Step[StepBounds[Any]] | UnreadableStep:
    bounds = decode_bounds(row.kind, row.version, row.bounds)
    if isinstance(bounds, Undecodable):
        return _unreadable(connection, row, bounds)
    return Step(row.id, row.subject, bounds, row.started)


def _unreadable(connection: Connection, row: Row[Any], problem: Undecodable) -> UnreadableStep:
    loaded = list(connection.scalars(select(schema.view.c.name).order_by(schema.view.c.name)))
    concerns_all = not row.subject or row.subject.startswith("(")
    views = [name for name in loaded if concerns_all or f",{name}," in f",{row.subject},"]
    writer = f"rollview {row.written_by}" if row.written_by else "an earlier rollview"
    names = ["all"] if concerns_all and views else views
    reload = " ".join(["rollview setup", *(f"--reload {quote(name)}" for name in names)])
    hint = f"`{reload}` abandons it and reloads everything that it may have changed"
    if problem.is_newer:
        hint = f"install {writer} or later, which finishes it; or {hint}"
    of_subject = f" of {row.subject}" if row.subject else ""
    message = (
        f"{row.kind} step {row.id}{of_subject}, written by {writer}, cannot be finished: {problem.reason}"
    )
    refusal = StepRefused(message, subject=row.subject or row.kind, hint=hint)
    return UnreadableStep(row.id, row.kind, row.subject, tuple(views), concerns_all, refusal)


def finish_step(
    connection: Connection, step: Step[StepBounds[Any]], effects: Sequence[StepEffect], now: float
) -> None:
    """Makes the effects true, in order, and ends the step."""
    end_step(connection, step)
    for ordinal, effect in enumerate(effects):
        _make_true(connection, step.id, ordinal, effect, now)


def end_step(connection: Connection, step: Step[StepBounds[Any]] | UnreadableStep) -> None:
    """Takes a step off the list of pending ones."""
    if connection.execute(delete(schema.step).where(schema.step.c.id == step.id)).rowcount == 0:
        raise CatalogError(
            f"{step.kind} step {step.id} of {step.subject} is not pending",
            subject=f"step {step.id}",
            hint="it was already finished or abandoned; read the pending steps again",
        )


def end_steps(connection: Connection, subject: str, kinds: Sequence[type[StepBounds[Any]]]) -> None:
    """Takes all steps of these kinds off the list; their bounds need not be readable."""
    step = schema.step.c
    chosen = [step.subject == subject, step.kind.in_([kind.kind for kind in kinds])]
    connection.execute(delete(schema.step).where(*chosen))


def _make_true(connection: Connection, step: int, ordinal: int, effect: StepEffect, now: float) -> None:
    match effect:
        case Sequenced():
            keep_units(connection, effect, now)
        case ViewAdded():
            views.add_view(connection, effect)
        case ViewDropped():
            views.drop_view(connection, effect)
        case SpanEnded():
            views.end_span(connection, effect, now)
        case Moved():
            views.move(connection, effect, now)
        case Materialized():
            views.materialize(connection, effect)
        case Refreshed():
            views.note_refresh(connection, effect.refresh, step, ordinal)
        case Worked():
            works.add_work(connection, effect)
        case Retained():
            views.retain(connection, effect)
        case Condensed():
            views.note_condensed(connection, effect)


@dataclass(frozen=True)
class Steps:
    """Pending steps: begun, and neither finished nor abandoned."""

    database: Database
    clock: Callable[[], float]

    def begin(self, lease: Lease, subject: str, bounds: B) -> Step[B]:
        """Records what is about to be done. Ids grow with every step, for ever."""
        with self.database.writing() as connection:
            fence(connection, lease)
            return begin_step(connection, subject, bounds, self.clock())

    def pending(self, kind: type[B], subject: str | None = None) -> list[Step[B]]:
        """The steps that were begun and neither finished nor abandoned, the oldest first.

        StepRefused if one of them cannot be read, or if one is of a kind that this release does not know.
        """
        with self.database.reading() as connection:
            return pending_steps(connection, kind, subject)

    def unfinished(self) -> list[Step[StepBounds[Any]] | UnreadableStep]:
        """The pending steps of all kinds, the oldest first, also those that this release cannot finish."""
        with self.database.reading() as connection:
            return unfinished_steps(connection)

    def finish(self, lease: Lease, step: Step[StepBounds[E]], *effects: E) -> None:
        """Ends a step and makes all its effects true, in order: at once, or not at all.

        The step may have been begun by an earlier holder of the lease.
        """
        with self.database.writing() as connection:
            fence(connection, lease)
            finish_step(connection, step, effects, self.clock())

    def abandon(self, lease: Lease, step: Step[StepBounds[Any]]) -> None:
        with self.database.writing() as connection:
            fence(connection, lease)
            end_step(connection, step)

    def give_up(self, lease: Lease, step: UnreadableStep) -> None:
        """Ends a step that this release cannot read, with all that it may have changed.

        Of its views nothing is left but what they show, until they are loaded. Where it concerns all, what
        was captured is forgotten.
        """
        with self.database.writing() as connection:
            fence(connection, lease)
            for name in step.views:
                views.freeze(connection, name)
            if step.concerns_all:
                end_histories(connection, list(read_tables(connection)), self.clock())
            end_step(connection, step)

    def abandon_pending(self, lease: Lease, subject: str, *kinds: type[StepBounds[Any]]) -> None:
        """Ends the pending steps of these kinds, readable or not: all they did is about to be replaced."""
        with self.database.writing() as connection:
            fence(connection, lease)
            end_steps(connection, subject, kinds)
