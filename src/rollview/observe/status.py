"""`status`: the state of a project, with the facts that take longer to find out.

These are the descriptions that sources give, the notes about view files, and valid times.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field

from rollview.algebra.valid_time import ValidTime
from rollview.algebra.view import View
from rollview.catalog import AlgorithmChoice, Catalog, Consumer, Refresh, Work
from rollview.config.project_file import ProjectFile
from rollview.errors import RollviewError
from rollview.maintain.batches import BatchPlan, batch_plan
from rollview.maintain.intervals import RECOMPUTED
from rollview.observe.explain_parts import MeasuredPart
from rollview.observe.notebook import list_html, page_html, seconds_text, table_html
from rollview.observe.state import (
    HaltStatus,
    SourceState,
    UnfinishedStatus,
    ViewState,
    WaitingStatus,
    project_state,
)
from rollview.runtime.sites import Sites
from rollview.storage.points_in_time import iso
from rollview.upkeep.valid_times import ValidTimes
from rollview.views.define import new_columns
from rollview.views.properties import algorithm_of, is_chosen_by_cost, is_full
from rollview.views.resumable import detached
from rollview.views.view_files import file_notes

__all__ = [
    "HaltStatus",
    "RelationStatus",
    "ReleasedStatus",
    "SourceStatus",
    "SpanStatus",
    "Status",
    "UnfinishedStatus",
    "ViewStatus",
    "WaitingStatus",
    "measured_parts",
    "status",
    "work_of",
]
_DAY_SECONDS = 86_400.0


@dataclass(frozen=True)
class SourceStatus:
    """A site: how it is captured, how far, and when last.

    `merged` of its versions may stand for several transactions, because nothing was captured in between: the
    views are exact at each of them, and states in between are not known.
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
    """A range of csn that a view can be read at, from before it was reloaded, and why it was reloaded."""

    oldest: int
    newest: int
    reason: str


@dataclass(frozen=True)
class ViewStatus:
    """A view: what it shows, the interval in which that is valid, what can be read.

    `state` is `running`, `catching up`, `stopped`, or `waiting for` and the sources whose part of a global
    transaction has not come; a view that is stopped has `halted`. `lag_seconds` is the age of the oldest
    captured change of its tables that it does not show, None if its history does not go back so far; `late`
    says whether it should show that change by now: one whose `schedule` is not due may lag and is not late.
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
    lag_seconds: float | None
    valid_from: str
    valid_until: str
    relations: tuple[RelationStatus, ...]
    last_refresh: Refresh | None
    last_recomputed: Refresh | None = None
    """When a step was last computed as a whole, because deltas would have taken much longer."""
    note: str = ""
    spans: tuple[SpanStatus, ...] = ()
    """The ranges from before it was reloaded that can still be read, the newest first."""
    schedule: str = ""
    """When it is rolled, if not as soon as possible."""
    next_due: str = ""
    consumers: tuple[Consumer, ...] = ()
    """The consumers of its delta, the one furthest behind first: nothing that it has not read is pruned."""
    work: Work = field(default_factory=Work)
    """The cost of its propagation since it was loaded."""
    algorithm: str = ""
    measured: tuple[MeasuredPart, ...] = ()
    """The algorithm of each of its parts, and what the algorithms have cost."""
    new_columns: tuple[str, ...] = ()
    """Columns that `SELECT *` does not show, because they were added after setup: `source.table.column`."""
    late: bool = False
    batch: BatchPlan | None = None
    """How long its steps are, if it waits for more transactions."""


@dataclass(frozen=True)
class ReleasedStatus:
    """A global transaction whose parts count as transactions of their own: given up, or released by hand."""

    global_id: str
    at: str


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
    released: tuple[ReleasedStatus, ...] = ()
    """Global transactions that are not waited for any more, of the last day, the newest first."""
    missing: tuple[str, ...] = ()
    """Views that have a file and are not set up."""
    broken: Mapping[str, str] = field(default_factory=dict)
    """Files of no view that is set up, and why they cannot be used."""

    def _repr_html_(self) -> str:
        """Sources, views, and what needs attention."""
        sources = table_html(
            ("source", "type", "transactions", "captured", ""),
            [
                (each.site, each.kind, f"{each.version:,}", each.captured_at or "nothing yet", each.problem)
                for each in self.sources
            ],
            numbers=(2,),
        )
        views = table_html(
            ("view", "state", "shows csn", "high-water mark", "lag", "valid from", "until", "last refresh"),
            [
                (
                    each.name,
                    each.state,
                    each.materialized,
                    each.high_water,
                    seconds_text(each.lag_seconds),
                    each.valid_from or "its first load",
                    each.valid_until or "now",
                    ""
                    if each.last_refresh is None
                    else f"{each.last_refresh.kind}; {each.last_refresh.reason}",
                )
                for each in self.views
            ],
            numbers=(2, 3, 4),
        )
        halted = [
            _halted(name, each)
            for name, each in (
                *((f"source {each.site}", each.halted) for each in self.sources),
                *((f"view {each.name}", each.halted) for each in self.views),
            )
            if each is not None
        ]
        notes = [f"{each.name}: {each.note}" for each in self.views if each.note]
        notes += [f"{name}: {note}" for name, note in self.broken.items()]
        waiting = [f"{each.global_id} waits for {', '.join(each.missing)}" for each in self.waiting]
        unfinished = [each.problem or f"unfinished: {each.step}" for each in self.unfinished]
        matters = list_html((*halted, *notes, *waiting, *unfinished))
        return page_html(
            f"{self.name} at csn {self.last_csn}", self.last_commit_time, sources, views, matters
        )


def status(project: ProjectFile, valid: ValidTimes, sites: Sites) -> Status:
    """Reads the catalog; asks sources only how they are captured."""
    catalog = valid.catalog
    found, notes = project_state(catalog, valid.views.all()), file_notes(project, catalog.views.all())
    return Status(
        name=project.name,
        last_csn=found.last_csn,
        last_commit_time=iso(found.last_commit_time),
        sources=tuple(_source(project, sites, each) for each in found.sources),
        views=tuple(
            _view(valid, each, found.last_csn, notes.of_views.get(each.name, "")) for each in found.views
        ),
        unfinished=found.unfinished,
        missing=notes.missing,
        broken=notes.broken,
        waiting=found.waiting,
        released=tuple(
            ReleasedStatus(global_id, iso(moment))
            for global_id, moment in catalog.global_transactions.last_released(time.time() - _DAY_SECONDS)
        ),
    )


def work_of(catalog: Catalog, view: View) -> Work:
    """The cost of propagating a view and its stages."""
    works = [catalog.works.of_view(part.name) for part in view.stored_parts]
    return Work(*(sum(each) for each in zip(*map(astuple, works), strict=True)))


def measured_parts(catalog: Catalog, view: View) -> tuple[MeasuredPart, ...]:
    """The algorithms of a view and its stages, with their costs; none of a view that is recomputed."""
    choices, parts = catalog.works.choices(), () if is_full(view) else tuple(reversed(view.stored_parts))
    return tuple(_measured(catalog, part, choices.get(part.name)) for part in parts)


def _measured(catalog: Catalog, part: View, choice: AlgorithmChoice | None) -> MeasuredPart:
    costs = catalog.works.by_algorithm(part.name).values()
    own = algorithm_of(part).name
    if choice is None or not is_chosen_by_cost(part):
        return MeasuredPart(part.name, own, "", False, tuple(costs))
    is_measuring = choice.transactions > 0
    return MeasuredPart(part.name, choice.algorithm, choice.reason, is_measuring, tuple(costs))


def _source(project: ProjectFile, sites: Sites, found: SourceState) -> SourceStatus:
    how: dict[str, str] = {}
    problem, kind = "", ""
    try:
        source = sites.source_at(found.site)
        kind, how = source.kind, dict(source.describe())
    except Exception as error:  # The reader wants to see why a source does not answer.
        problem = project.secrets.hide_error(error, isinstance(error, RollviewError))
    return SourceStatus(
        site=found.site,
        kind=kind,
        version=found.version,
        captured_at=iso(found.captured_at),
        how=how,
        problem=problem,
        halted=found.halted,
        merged=found.merged,
    )


def _view(valid: ValidTimes, found: ViewState, last: int, note: str) -> ViewStatus:
    catalog, view = valid.catalog, valid.views.named(found.name)
    is_resumable = not detached(catalog.now, view)
    shows = valid.of_view(view.name, found.materialized) if is_resumable else ValidTime(found.materialized)
    changed_at = None if shows.end is None else catalog.history.commit_time(shows.end)
    relations = tuple(
        RelationStatus(
            part.name if query.relation is None else part.blocks[query.block].relations[query.relation].alias,
            position,
        )
        for part in view.stored_parts
        for query, position in catalog.views.positions(part.name).items()
    )
    whole = [
        each for part in view.stored_parts for each in catalog.views.refreshes(part.name, 1, (RECOMPUTED,))
    ]
    return ViewStatus(
        name=found.name,
        policy=found.policy,
        state=found.state,
        halted=found.halted,
        materialized=found.materialized,
        high_water=found.high_water,
        oldest=found.oldest,
        newest=last,
        behind_csn=found.behind_csn,
        lag_seconds=found.lag_seconds,
        valid_from=iso(catalog.history.commit_time(shows.start)),
        valid_until=iso(changed_at),
        relations=relations,
        last_refresh=found.last_refresh,
        work=work_of(catalog, view),
        algorithm=found.algorithm,
        measured=measured_parts(catalog, view),
        last_recomputed=max(whole, key=lambda each: each.finished_at, default=None),
        note=note,
        spans=tuple(
            SpanStatus(span.record.oldest_csn, span.upto_csn, span.reason)
            for span in catalog.views.spans(view.name)
        ),
        schedule=found.schedule,
        next_due=iso(found.next_due),
        consumers=tuple(catalog.consumers.of(view.name)),
        new_columns=new_columns(valid.views.record(view.name), catalog.captured.present_columns()),
        late=found.is_late,
        batch=batch_plan(catalog, found.name, bound) if (bound := found.max_staleness_seconds) else None,
    )


def _halted(name: str, halted: HaltStatus) -> str:
    return f"stopped: {name}: {halted.reason}" + (f" ({halted.hint})" if halted.hint else "")
