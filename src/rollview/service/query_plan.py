"""How a query is going to be answered: from which views and tables, all as of one csn, or not at all.

Every view can be had at the csn that its delta covers, and is valid around those (`valid_times`); every base
table is read and aligned. The newest csn at which all of them are valid is chosen, or the one that was asked
for; where there is none, the query is refused with the nearest ones (beyer2000 §6: valid together, here by
rolling the tables rather than by choosing between stale ones).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from shlex import quote

from rollview.algebra.relation import Table
from rollview.algebra.valid_time import Readable, ValidTime, times_in_common, valid_together
from rollview.algebra.view import owner
from rollview.catalog import ViewRecord
from rollview.errors import PointError, ViewError
from rollview.planning import referenced_names
from rollview.service.asked_tables import AskedTable, asked_tables
from rollview.service.definitions import as_table, is_full
from rollview.service.points_in_time import PointsInTime, show
from rollview.service.rewriting import Rewritten, parsed, rewrite
from rollview.service.session import Session
from rollview.service.valid_times import ValidTimes


@dataclass(frozen=True)
class Question:
    """A query, the point in time that it is about, and how old its answer may be, in seconds."""

    sql: str
    as_of: str | int | None = None
    max_staleness: float | None = None
    may_rewrite: bool = True


@dataclass(frozen=True)
class QueryPlan:
    """What is read, and as of which csn. A view is rolled to the csn in `views`, where it is the same."""

    question: Question
    csn: int
    views: Mapping[str, int]
    tables: Mapping[str, AskedTable]
    rewritten: Rewritten | None = None
    records: Mapping[str, ViewRecord] = field(default_factory=dict, repr=False)

    @property
    def named_views(self) -> tuple[str, ...]:
        """The views as users call them."""
        return tuple(dict.fromkeys(map(owner, self.views)))


@dataclass(frozen=True)
class _Inputs:
    views: tuple[str, ...]
    tables: Mapping[str, AskedTable]
    rewritten: Rewritten | None = None


@dataclass(frozen=True)
class QueryPlanner:
    """Makes plans."""

    points: PointsInTime
    valid: ValidTimes
    session: Session

    def plan(self, question: Question) -> QueryPlan:
        """The cheapest plan: from what is stored, where the query follows from it."""
        known = self._known()
        names = self._names(question.sql, known)
        inputs = self._rewritten(question.sql, known) if question.may_rewrite else None
        as_written = self._as_written(question.sql, names, known)
        if inputs is None:
            return self._as_of_one_csn(question, as_written)
        try:
            plan = self._as_of_one_csn(question, inputs)
        except PointError:
            # Perhaps the tables themselves can be had then.
            return self._as_of_one_csn(question, as_written)
        if any(is_full(self.valid.views.named(name)) for name in inputs.views):
            # A snapshot may be of any age: it is no reason to give an older answer than there is.
            with suppress(PointError):
                newest = self._as_of_one_csn(question, as_written)
                return newest if newest.csn > plan.csn else plan
        return plan

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
        """Whether one of the views is not what it was when the plan was made."""
        now = self.points.catalog.views()
        return any(now.get(name) != record for name, record in plan.records.items())

    def _known(self) -> dict[str, Table]:
        """Everything that can be named after FROM."""
        views, tables = self.valid.views, self.points.catalog.tables()
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
                hint = f"known: {', '.join((*self.valid.views.names, *self.points.catalog.tables()))}"
                message = f"there is no view or captured table `{name}`"
                raise ViewError(message, subject=name, hint=hint)
        return tuple(dict.fromkeys(by_name[name.lower()] for name in names))

    def _as_written(self, sql: str, names: Iterable[str], known: Mapping[str, Table]) -> _Inputs:
        tables = [name for name in names if known[name].source]
        views = tuple(name for name in names if not known[name].source)
        return _Inputs(views, asked_tables(parsed(sql, known) if tables else None, tables, known))

    def _has_state(self, name: str) -> bool:
        """Whether the state of a view can be read: one that is recomputed may show no more than its rows."""
        layout = self.valid.views.layout(name)
        return layout.has_state or layout.is_told_by_rows

    def _rewritten(self, sql: str, known: Mapping[str, Table]) -> _Inputs | None:
        stored = {name: view for name, view in self.valid.views.all().items() if self._has_state(name)}
        rewritten = rewrite(sql, known, stored, self.session)
        if rewritten is None:
            return None
        read = {table.qualified: table for table in rewritten.read}
        views = [rewritten.origins[part.name].name for part in rewritten.derived]
        views += [name for name, table in read.items() if not table.source]
        tables = {name: AskedTable(table) for name, table in read.items() if table.source}
        return _Inputs(tuple(dict.fromkeys(views)), tables, rewritten)

    def _as_of_one_csn(self, question: Question, inputs: _Inputs) -> QueryPlan:
        """The plan at the csn that was asked for, or the newest one; refuses if there is none."""
        catalog = self.points.catalog
        records = {name: record for name, record in catalog.views().items() if name in inputs.views}
        readable = {name: self.valid.readable(name) for name in inputs.views}
        readable |= {name: (self.valid.of_relation(asked.table),) for name, asked in inputs.tables.items()}
        common = times_in_common([each.valid for each in stretches] for stretches in readable.values())
        last = catalog.last_csn()
        if question.as_of is not None:
            csn = self.points.resolve(question.as_of, last)
            if csn > last or not any(csn in each for each in common):
                raise self._refusal_at(csn, common, readable)
        elif not common:
            raise self._refusal(readable, inputs)
        else:
            csn = last if common[-1].end is None else min(last, common[-1].end - 1)
        views = {name: _stretch(readable[name], csn).nearest(csn) for name in inputs.views}
        plan = QueryPlan(question, csn, views, inputs.tables, inputs.rewritten, records)
        self._check_one_history(plan)
        return plan

    def _refusal(self, readable: Mapping[str, tuple[Readable, ...]], inputs: _Inputs) -> PointError:
        latest = max(readable, key=lambda name: readable[name][0].valid.start)
        behind = min(readable, key=lambda name: _end(readable[name]))
        if all(len(each) == 1 for each in readable.values()):
            why = (
                f"{latest} cannot be read before csn {readable[latest][0].valid.start}, "
                f"and {behind} not after csn {int(_end(readable[behind])) - 1}"
            )
        else:
            why = "; ".join(f"{owner(name)}: {_told(each)}" for name, each in readable.items())
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
        last = catalog.last_csn()
        lacking = [name for name, each in readable.items() if _stretch_at(each, csn) is None]
        message = f"csn {csn} has not been captured yet" if csn > last else f"no answer as of csn {csn}"
        if lacking and csn <= last:
            message += f": {owner(lacking[0])} cannot be had there"
        ends = [last if each.end is None else each.end - 1 for each in common]
        near = [max((end for end in ends if end < csn), default=None)]
        near.append(min((each.start for each in common if each.start > csn), default=None))
        shown = [show(catalog, each) for each in near if each is not None]
        hint = f"possible nearby: {' and '.join(shown)}" if shown else "`rollview refresh` the views first"
        return PointError(message, subject=lacking[0] if lacking else f"csn {csn}", hint=hint)

    def _check_one_history(self, plan: QueryPlan) -> None:
        """Refuses inputs that were made from different histories of one table: their states never met."""
        catalog = self.points.catalog
        begun = {name: each.id for name, each in catalog.histories().items()}
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
                        hint="`rollview setup` loads the views that stand before that",
                    )
                if read != name and read in catalog.views():
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


def _told(readable: tuple[Readable, ...]) -> str:
    """The csn that something can be had at, for people."""
    pairs = [(each.valid.start, each.valid.end) for each in readable]
    return " and ".join(
        f"from csn {start} on" if end is None else f"csn {start} to {end - 1}" for start, end in pairs
    )
