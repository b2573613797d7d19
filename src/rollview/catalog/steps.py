"""Steps: first the exact bounds are recorded, then something is written elsewhere, then the step is finished.

After a crash the pending steps tell what may or may not have been written. It is written again with the
same bounds under the same id, by which the other side knows a repetition. All effects of a step become
true in the transaction that ends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from rollview import __version__
from rollview.catalog import schema, views, work
from rollview.catalog.effects import (
    Condensed,
    Materialized,
    Moved,
    Refreshed,
    Retained,
    Sequenced,
    SpanEnded,
    StepEffect,
    ViewAdded,
    ViewDropped,
    Worked,
)
from rollview.catalog.sequencing import keep_units
from rollview.catalog.step_bounds import KINDS, B, Step, StepBounds
from rollview.catalog.step_encoding import Undecodable, decode_bounds, encode_bounds
from rollview.errors import CatalogError, StepRefused


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
            work.add_work(connection, effect)
        case Retained():
            views.retain(connection, effect)
        case Condensed():
            views.note_condensed(connection, effect)
