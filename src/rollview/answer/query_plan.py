"""The plan of a query: its views and tables, all as of one csn, or a refusal.

A view is available at the csn that its delta covers, and valid around those (`valid_times`); base tables are
read and aligned. The plan takes the newest csn at which all of them are valid, or the one that was asked for;
where there is none, the query is refused with the nearest ones (beyer2000 §6: valid together, here by
rolling the tables rather than by choosing between stale ones).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote

from rollview.algebra.relation import Table
from rollview.algebra.valid_time import Readable, ValidTime, times_in_common, valid_together
from rollview.algebra.view import owner
from rollview.answer.rewriting import Rewritten, StoredState, parsed, parsed_query
from rollview.answer.routes import (
    AskedTable,
    Candidate,
    Estimates,
    Route,
    candidates,
    route_as_written,
    routes_of,
)
from rollview.catalog import ViewRecord
from rollview.errors import PointError, ViewError
from rollview.planning import referenced_names
from rollview.runtime.session import Session
from rollview.runtime.sites import Sites
from rollview.sql.text.gate import check_query
from rollview.sql.text.order_and_limit import split_order_and_limit
from rollview.storage.points_in_time import PointsInTime, show
from rollview.upkeep.valid_times import ValidTimes
from rollview.views.properties import as_table, is_full


@dataclass(frozen=True)
class Question:
    """A query, the point in time that it is about, and how old its answer may be, in seconds."""

    sql: str
    as_of: str | int | None = None
    max_staleness: float | None = None
    may_rewrite: bool = True
    known_since: int | None = None
    """The csn since which all columns of base tables that it names are captured, if that is known."""


@dataclass(frozen=True)
class QueryPlan:
    """The inputs, and the csn. A view is rolled to its csn in `views`, where it has the same rows."""

    question: Question
    csn: int
    views: Mapping[str, int]
    route: Route
    records: Mapping[str, ViewRecord] = field(default_factory=dict, repr=False)
    others: tuple[tuple[Route, str], ...] = field(default=(), repr=False)
    """The routes that are not taken, and why."""

    @property
    def tables(self) -> Mapping[str, AskedTable]:
        """The base tables that are read."""
        return self.route.tables

    @property
    def rewritten(self) -> Rewritten | None:
        """The query with stored states in it, if there are some."""
        return self.route.rewritten

    @property
    def named_views(self) -> tuple[str, ...]:
        """The views that users named, without stages."""
        return tuple(dict.fromkeys(map(owner, self.views)))


@dataclass(frozen=True)
class QueryPlanner:
    """Makes plans."""

    points: PointsInTime
    valid: ValidTimes
    session: Session
    sites: Sites

    def plan(self, question: Question) -> QueryPlan:
        """The plan that reads the fewest rows: from what is stored, where the query follows from it."""
        check_query(question.sql)
        known = self._known()
        names = self._names(question.sql, known)
        estimates = Estimates(self.valid.stored, self.sites)
        view = parsed(question.sql, known) if any(known[name].source for name in names) else None
        as_written = route_as_written(view, names, known, estimates)
        if not question.may_rewrite:
            return self._as_of_one_csn(question, as_written)
        query = parsed_query(question.sql, known, self._stored_states, self.session)
        routes = routes_of(query, self._stored_states, estimates) if query else []
        if not routes:
            return self._as_of_one_csn(question, as_written)
        return self._best(question, sorted([*routes, as_written], key=lambda route: route.cost), as_written)

    def _best(self, question: Question, routes: Sequence[Route], as_written: Route) -> QueryPlan:
        """The plan of the first route that can be had; one with a snapshot only if none is newer."""
        found: QueryPlan | None = None
        others: list[tuple[Route, str]] = []
        for route in routes:
            if found is not None and (not self._has_snapshot(found.route) or self._has_snapshot(route)):
                others.append(
                    (route, f"it reads {route.described}, the one that is taken {found.route.described}")
                )
                continue
            try:
                plan = self._as_of_one_csn(question, route)
            except PointError as error:
                others.append((route, str(error)))
                continue
            if found is not None and plan.csn <= found.csn:
                others.append(
                    (route, f"it reads {route.described}, the one that is taken {found.route.described}")
                )
                continue
            if found is not None:
                # A snapshot may be of any age: it is no reason to give an older answer than there is.
                others.append((found.route, f"it shows csn {found.csn}, and csn {plan.csn} can be had"))
            found = plan
        if found is None:
            return self._as_of_one_csn(question, as_written)
        return replace(found, others=tuple(others))

    def _has_snapshot(self, route: Route) -> bool:
        """Whether a view that is only recomputed stands for tables."""
        return any(is_full(self.valid.views.named(name)) for name in route.uses)

    def candidates(self, plan: QueryPlan) -> tuple[Candidate, ...]:
        """The stored views that have a table in common with the query, and why each is taken or not."""
        if not plan.question.may_rewrite:
            return ()
        view = parsed(split_order_and_limit(plan.question.sql)[0], self._known())
        return candidates(plan.route, plan.others, view, self._stored_states) if view else ()

    def valid_time(self, plan: QueryPlan) -> ValidTime:
        """The csn around that of a plan at which its answer is the same."""
        each = [self.valid.of_view(name, csn) for name, csn in plan.views.items()]
        each += [self.valid.of_tables([name], plan.csn) for name in plan.tables]
        both = valid_together(each) if each else ValidTime(0)
        return both or ValidTime(plan.csn, plan.csn + 1)

    def base_tables(self, plan: QueryPlan) -> set[str]:
        """All base tables that the answer depends on."""
        below = (table for name in plan.views for table in self.valid.views.base_tables(name))
        return {*plan.tables, *below}

    def has_moved(self, plan: QueryPlan) -> bool:
        """Whether one of the views has changed since the plan was made."""
        now = self.points.catalog.views.all()
        return any(now.get(name) != record for name, record in plan.records.items())

    def _known(self) -> dict[str, Table]:
        """Everything that can be named after FROM."""
        views, tables = self.valid.views, self.points.catalog.captured.tables()
        for name in views.names:
            types = tuple(kind for _, kind in views.record(name).columns)
            tables[name] = as_table(views.named(name), types)
        return tables

    def _names(self, sql: str, known: Mapping[str, Table]) -> tuple[str, ...]:
        """The views and tables that a query names, as they are called."""
        by_name = {name.lower(): name for name in known}
        names = referenced_names(sql)
        for name in names:
            if name.lower() not in by_name:
                hint = (
                    f"known: {', '.join((*self.valid.views.names, *self.points.catalog.captured.tables()))}"
                )
                message = f"there is no view or captured table `{name}`"
                raise ViewError(message, subject=name, hint=hint)
        return tuple(dict.fromkeys(by_name[name.lower()] for name in names))

    @property
    def _stored_states(self) -> tuple[StoredState, ...]:
        """What can be read of views besides their rows: of one that is recomputed there may be no more."""
        layouts = ((view, self.valid.views.layout(name)) for name, view in self.valid.views.all().items())
        return tuple(
            StoredState(view, layout.state, layout.columns)
            for view, layout in layouts
            if layout.has_state or layout.is_in_rows
        )

    def _as_of_one_csn(self, question: Question, inputs: Route) -> QueryPlan:
        """The plan at the csn that was asked for, or the newest one; refuses if there is none."""
        catalog = self.points.catalog
        records = {name: record for name, record in catalog.views.all().items() if name in inputs.views}
        readable = {name: self.valid.readable(name) for name in inputs.views}
        since = question.known_since
        readable |= {n: (self.valid.of_relation(asked.table, since),) for n, asked in inputs.tables.items()}
        common = times_in_common([each.valid for each in stretches] for stretches in readable.values())
        last = catalog.history.last_csn()
        if question.as_of is not None:
            csn = self.points.resolve(question.as_of, last)
            if csn > last or not any(csn in each for each in common):
                raise self._refusal_at(csn, common, readable)
        elif not common:
            raise self._refusal(readable, inputs)
        else:
            csn = last if common[-1].end is None else min(last, common[-1].end - 1)
        views = {name: _stretch(readable[name], csn).nearest(csn) for name in inputs.views}
        plan = QueryPlan(question, csn, views, inputs, records)
        self._check_one_history(plan)
        return plan

    def _refusal(self, readable: Mapping[str, tuple[Readable, ...]], inputs: Route) -> PointError:
        latest = max(readable, key=lambda name: readable[name][0].valid.start)
        behind = min(readable, key=lambda name: _end(readable[name]))
        if all(len(each) == 1 for each in readable.values()):
            why = (
                f"{latest} cannot be read before csn {readable[latest][0].valid.start}, "
                f"and {behind} not after csn {int(_end(readable[behind])) - 1}"
            )
        else:
            why = "; ".join(f"{owner(name)}: {_readable_words(each)}" for name, each in readable.items())
        views = tuple(dict.fromkeys(map(owner, inputs.views)))
        return PointError(
            f"there is no csn at which all of them can be read: {why}",
            subject=latest,
            hint=f"`rollview refresh {' '.join(map(quote, views))}` brings the views to the same csn",
        )

    def _refusal_at(
        self, csn: int, common: tuple[ValidTime, ...], readable: Mapping[str, tuple[Readable, ...]]
    ) -> PointError:
        catalog = self.points.catalog
        last = catalog.history.last_csn()
        lacking = [name for name, each in readable.items() if _stretch_at(each, csn) is None]
        message = f"csn {csn} has not been captured yet" if csn > last else f"no answer as of csn {csn}"
        if lacking and csn <= last:
            message += f": {owner(lacking[0])} is not available there"
        ends = [last if each.end is None else each.end - 1 for each in common]
        near = [max((end for end in ends if end < csn), default=None)]
        near.append(min((each.start for each in common if each.start > csn), default=None))
        shown = [show(catalog, each) for each in near if each is not None]
        hint = f"possible nearby: {' and '.join(shown)}" if shown else "`rollview refresh` the views first"
        return PointError(message, subject=lacking[0] if lacking else f"csn {csn}", hint=hint)

    def _check_one_history(self, plan: QueryPlan) -> None:
        """Refuses inputs from different histories of one table: their states never existed together."""
        catalog = self.points.catalog
        begun = {name: each.id for name, each in catalog.captured.histories().items()}
        seen: dict[str, tuple[str, str]] = {name: (begun[name], name) for name in plan.tables}
        waiting = [(name, name) for name in plan.views]
        while waiting:
            name, reader = waiting.pop()
            record = self.valid.stored.record_at(name, plan.views.get(name, plan.csn))
            for read, history in {**record.histories, name: str(record.generation)}.items():
                other, other_reader = seen.setdefault(read, (history, reader))
                if other != history:
                    raise PointError(
                        f"{owner(reader)} and {owner(other_reader)} cannot be combined: "
                        f"the history of {owner(read)} began again between them",
                        subject=owner(reader),
                        hint="`rollview setup` loads the views from before that",
                    )
                if read != name and read in catalog.views.all():
                    waiting.append((read, reader))


def _stretch_at(readable: Iterable[Readable], csn: int) -> Readable | None:
    return next((each for each in readable if csn in each.valid), None)


def _stretch(readable: Iterable[Readable], csn: int) -> Readable:
    found = _stretch_at(readable, csn)
    assert found is not None
    return found


def _end(readable: tuple[Readable, ...]) -> float:
    end = readable[-1].valid.end
    return float("inf") if end is None else end


def _readable_words(readable: tuple[Readable, ...]) -> str:
    """The available csn ranges, for people."""
    pairs = [(each.valid.start, each.valid.end) for each in readable]
    return " and ".join(
        f"from csn {start} on" if end is None else f"csn {start} to {end - 1}" for start, end in pairs
    )
