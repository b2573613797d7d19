"""Steps: first the exact bounds are recorded, then something is written elsewhere, then the step is finished.

After a crash the pending steps tell what may or may not have been written. It is written again with the
same bounds under the same id, by which the other side knows a repetition. All effects of a step become
true in the transaction that ends it.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from rollview.catalog import schema, views
from rollview.catalog.effects import (
    Condensed,
    Materialized,
    Moved,
    Refreshed,
    Retained,
    Sequenced,
    StepEffect,
    ViewAdded,
    ViewDropped,
)
from rollview.catalog.records import Step
from rollview.catalog.sequencing import keep_units
from rollview.errors import CatalogError


def begin_step(connection: Connection, kind: str, subject: str, bounds: dict[str, Any], now: float) -> Step:
    """Records a step with the next id."""
    known = schema.catalog.c.last_step
    # Adding first locks the row, so that no one else can read the same number.
    connection.execute(update(schema.catalog).values(last_step=known + 1))
    number = connection.scalars(select(known)).one()
    text = json.dumps(bounds)
    row = {"id": number, "kind": kind, "subject": subject, "bounds": text, "started": now}
    connection.execute(insert(schema.step).values(**row))
    return Step(number, kind, subject, json.loads(text), now)


def pending_steps(connection: Connection, kind: str, subject: str | None) -> list[Step]:
    """Steps that were begun and not finished, in the order they were begun."""
    step = schema.step.c
    of_kind = select(step.id, step.kind, step.subject, step.bounds, step.started).where(step.kind == kind)
    if subject is not None:
        of_kind = of_kind.where(step.subject == subject)
    return [
        Step(row.id, row.kind, row.subject, json.loads(row.bounds), row.started)
        for row in connection.execute(of_kind.order_by(step.id))
    ]


def finish_step(connection: Connection, step: Step, effects: tuple[StepEffect, ...], now: float) -> None:
    """Makes the effects true, in order, and ends the step."""
    end_step(connection, step)
    for ordinal, effect in enumerate(effects):
        _make_true(connection, step, ordinal, effect, now)


def end_step(connection: Connection, step: Step) -> None:
    """Takes a step off the list of pending ones."""
    if connection.execute(delete(schema.step).where(schema.step.c.id == step.id)).rowcount == 0:
        raise CatalogError(
            f"{step.kind} step {step.id} of {step.subject} is not pending",
            subject=f"step {step.id}",
            hint="it was finished or abandoned before; look at the pending steps again",
        )


def _make_true(connection: Connection, step: Step, ordinal: int, effect: StepEffect, now: float) -> None:
    match effect:
        case Sequenced():
            keep_units(connection, effect, now)
        case ViewAdded():
            views.add_view(connection, effect)
        case ViewDropped():
            views.drop_view(connection, effect)
        case Moved():
            views.move(connection, effect)
        case Materialized():
            views.materialize(connection, effect)
        case Refreshed():
            views.note_refresh(connection, effect.refresh, step.id, ordinal)
        case Retained():
            views.retain(connection, effect)
        case Condensed():
            views.note_condensed(connection, effect)
