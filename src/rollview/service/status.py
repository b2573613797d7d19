"""status: where everything stands, as data that the command line prints."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field

from rollview.algebra.valid_time import ValidTime
from rollview.algebra.view import View
from rollview.catalog import (
    ApplyStep,
    CaptureStep,
    Catalog,
    Consumer,
    Fault,
    LoadStep,
    PropagateStep,
    Refresh,
    Site,
    UnreadableStep,
    ViewRecord,
    Work,
)
from rollview.service.attached import detached
from rollview.service.definitions import policy_of
from rollview.service.faults import Faults
from rollview.service.file_notes import file_notes
from rollview.service.new_columns import new_columns
from rollview.service.notebook import status_html
from rollview.service.points_in_time import iso
from rollview.service.project_file import ProjectFile
from rollview.service.refresh_choice import RECOMPUTED
from rollview.service.schedules import schedule_of
from rollview.service.sites import Sites
from rollview.service.valid_times import ValidTimes


@dataclass(frozen=True)
class SourceStatus:
    """A site: how it is captured, how far, and when last.

    `merged` of its versions may stand for several transactions, because nobody captured in between: the views
    are right at each of them, and states in between are not known.
    """

    site: str
    kind: str
    version: int
    captured_at: str
    how: dict[str, str]
    problem: str = ""
    halted: HaltStatus | None = None
    merged: int = 0


@dataclass(frozen=True)
class RelationStatus:
    """How far the changes of one relation have been propagated."""

    relation: str
    position: int


@dataclass(frozen=True)
class SpanStatus:
    """What a view was, from one csn to another, before it was loaded anew, and why it was."""

    oldest: int
    newest: int
    reason: str


@dataclass(frozen=True)
class HaltStatus:
    """Why something cannot go on, since when, from which csn on (0 if not known), and the way out."""

    reason: str
    kind: str
    hint: str
    csn: int
    since: str


@dataclass(frozen=True)
class ViewStatus:
    """A view: what it shows, the interval in which that is valid, what can be read.

    `state` is `running`, `catching up` or `stopped`; a view that is stopped has `halted`.
    """

    name: str
    policy: str
    state: str
    halted: HaltStatus | None
    materialized: int
    high_water: int
    oldest: int
    newest: int
    behind_csn: int
    lag_seconds: float
    valid_from: str
    valid_until: str
    relations: tuple[RelationStatus, ...]
    last_refresh: Refresh | None
    last_recomputed: Refresh | None = None
    """When a step was last computed as a whole, because deltas would have taken much longer."""
    note: str = ""
    spans: tuple[SpanStatus, ...] = ()
    """What can be read from before it was loaded anew, the newest first."""
    schedule: str = ""
    """When it is rolled, if not as soon as possible."""
    next_due: str = ""
    consumers: tuple[Consumer, ...] = ()
    """Who reads its delta from outside, the one furthest behind first: nothing behind that is pruned."""
    work: Work = field(default_factory=Work)
    """What its propagation has cost since it was loaded."""
    new_columns: tuple[str, ...] = ()
    """What `SELECT *` does not show, because it came after setup: `source.table.column`."""


@dataclass(frozen=True)
class WaitingStatus:
    """A global transaction that holds up the sites that are present, until the missing ones report."""

    global_id: str
    present: tuple[str, ...]
    missing: tuple[str, ...]
    since: str


@dataclass(frozen=True)
class UnfinishedStatus:
    """A step that was begun and not finished: the next run finishes it, unless there is a problem."""

    step: str
    problem: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Status:
    """The whole project."""

    name: str
    last_csn: int
    last_commit_time: str
    sources: tuple[SourceStatus, ...]
    views: tuple[ViewStatus, ...]
    unfinished: tuple[UnfinishedStatus, ...]
    waiting: tuple[WaitingStatus, ...] = ()
    missing: tuple[str, ...] = ()
    """Views that have a file and are not set up."""
    broken: Mapping[str, str] = field(default_factory=dict)
    """Files of no view that is set up, and why they cannot be used."""

    def _repr_html_(self) -> str:
        return status_html(self)


def status(project: ProjectFile, valid: ValidTimes, faults: Faults, sites: Sites) -> Status:
    """Reads the catalog; asks sources only how they are captured."""
    catalog, views = valid.catalog, faults.views
    last = catalog.last_csn()
    records = catalog.views()
    notes = file_notes(project, records)
    stopped = faults.stopped()
    halted = {name: _halt(stopped, views.named(name)) for name in views.names}
    return Status(
        name=project.name,
        last_csn=last,
        last_commit_time=iso(catalog.commit_time(last)),
        sources=tuple(
            _source(project, sites, site, catalog.faults("site")) for site in catalog.sites().values()
        ),
        views=tuple(
            _view(valid, records[name], last, halted[name], notes.of_views.get(name, ""))
            for name in views.names
        ),
        unfinished=tuple(unfinished_steps(catalog)),
        missing=notes.missing,
        broken=notes.broken,
        waiting=tuple(
            WaitingStatus(each.global_id, each.present, each.missing, iso(each.since))
            for each in catalog.global_transactions.waiting()
        ),
    )


def work_of(catalog: Catalog, view: View) -> Work:
    """What the propagation of a view and of its stages has cost."""
    works = [catalog.works.of_view(part.name) for part in view.stored_parts]
    return Work(*(sum(each) for each in zip(*map(astuple, works), strict=True)))


def unfinished_steps(catalog: Catalog) -> Iterator[UnfinishedStatus]:
    """The steps that were begun and not finished."""
    for step in catalog.unfinished():
        name = f"{step.kind} {step.subject}".strip()
        if isinstance(step, UnreadableStep):
            yield UnfinishedStatus(name, step.refusal.message, step.refusal.hint)
        elif isinstance(step.bounds, CaptureStep | LoadStep | PropagateStep | ApplyStep):
            yield UnfinishedStatus(name)


def _halt(stopped: Mapping[str, Fault], view: View) -> HaltStatus | None:
    """What keeps a view, or a part of it, from going on."""
    found = [stopped[part.name] for part in view.stored_parts if part.name in stopped]
    return _halt_status(found[0]) if found else None


def _halt_status(fault: Fault) -> HaltStatus:
    return HaltStatus(fault.message, fault.kind, fault.hint, fault.csn, iso(fault.since))


def _source(project: ProjectFile, sites: Sites, site: Site, faults: Mapping[str, Fault]) -> SourceStatus:
    fault = faults.get(site.name)
    how: dict[str, str] = {}
    problem, kind = "", ""
    try:
        source = sites.source_at(site.name)
        kind, how = source.kind, dict(source.describe())
    except Exception as error:  # Whatever keeps a source from answering is what the reader wants to see.
        problem = project.secrets.hide(str(error).splitlines()[0])
    halted = None if fault is None else _halt_status(fault)
    return SourceStatus(
        site.name, kind, site.version, iso(site.captured_at), how, problem, halted, site.merged
    )


def _view(
    valid: ValidTimes, record: ViewRecord, last: int, halted: HaltStatus | None, note: str
) -> ViewStatus:
    catalog, view = valid.catalog, valid.views.named(record.name)
    shown, high_water = record.materialized_csn, catalog.high_water(view.name)
    is_attached = not detached(catalog, view)
    shows = valid.of_view(view.name, shown) if is_attached else ValidTime(shown)
    schedule, now = schedule_of(view), time.time()
    is_due = schedule is None or catalog.csn_at(schedule.last(now)) > shown
    state = "catching up" if shows.end is not None and is_due else "running"
    changed_at = None if shows.end is None else catalog.commit_time(shows.end)
    relations = tuple(
        RelationStatus(
            part.name if query.relation is None else part.blocks[query.block].relations[query.relation].alias,
            position,
        )
        for part in view.stored_parts
        for query, position in catalog.positions(part.name).items()
    )
    refreshes = catalog.refreshes(view.name, 1)
    whole = [each for part in view.stored_parts for each in catalog.refreshes(part.name, 1, (RECOMPUTED,))]
    return ViewStatus(
        name=view.name,
        policy=policy_of(view),
        state="stopped" if halted else state,
        halted=halted,
        materialized=shown,
        high_water=high_water,
        oldest=record.oldest_csn,
        newest=last,
        behind_csn=last - shown,
        lag_seconds=max(0.0, time.time() - changed_at) if changed_at else 0.0,
        valid_from=iso(catalog.commit_time(shows.start)),
        valid_until=iso(changed_at),
        relations=relations,
        last_refresh=refreshes[0] if refreshes else None,
        work=work_of(catalog, view),
        last_recomputed=max(whole, key=lambda each: each.finished_at, default=None),
        note=note,
        spans=tuple(
            SpanStatus(span.record.oldest_csn, span.upto_csn, span.reason)
            for span in catalog.spans(view.name)
        ),
        schedule="" if schedule is None else schedule.text,
        next_due="" if schedule is None else iso(schedule.next(now)),
        consumers=tuple(catalog.consumers.of(view.name)),
        new_columns=new_columns(record, catalog.present_columns()),
    )
