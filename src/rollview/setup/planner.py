"""plan: computes the actions of setup from the view definitions and the catalog.

Nothing is changed. All sources are asked, so that a refusal comes before anything is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from rollview.algebra.derivation import derive
from rollview.algebra.relation import Table
from rollview.algebra.view import View, is_stage, owner
from rollview.errors import NeedsAdministrator, RollviewError, UnsupportedError
from rollview.maintain.source_deltas import captured_tables, definitions_of, delta_tables, obstacle_of
from rollview.setup.plan import (
    Action,
    BeginHistory,
    DeriveView,
    DropView,
    FinishCapture,
    GiveUpStep,
    KeepView,
    LoadView,
    PrepareSource,
    Recorded,
    RestartHistory,
    RestartTable,
    SetupPlan,
    StopCapture,
)
from rollview.sources.deltas import MakesDeltas
from rollview.sources.source import SetupResult, Source
from rollview.views.lookup import to_capture
from rollview.views.mistakes import Mistakes
from rollview.views.properties import AT_SOURCE, is_full, notices, policy_of

_NEW, _EDITED = "first load", "the definition changed"


def plan_setup(
    views: Mapping[str, View], reloading: Set[str], recorded: Recorded, sources: Mapping[str, Source]
) -> SetupPlan:
    """The plan; refuses impossible ones."""
    return _Planning(views, reloading, recorded, sources).plan()


def needs_administrator(source: str, statements: tuple[str, ...]) -> NeedsAdministrator:
    """The error for statements that only an administrator can run at a source."""
    shown = "\n    ".join(statements)
    return NeedsAdministrator(
        f"source {source} needs its administrator:\n    {shown}",
        subject=source,
        hint="`rollview setup --statements FILE` writes this to a file for them",
        statements=statements,
    )


@dataclass
class _Planning:
    """A plan in the making. `left` are the recorded views that remain at this point of the plan."""

    views: Mapping[str, View]
    reloading: Set[str]
    recorded: Recorded
    sources: Mapping[str, Source]
    left: dict[str, View] = field(init=False)
    forgotten: dict[str, str] = field(default_factory=dict)
    restarted: dict[str, str] = field(default_factory=dict)
    present: dict[str, Table] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.left = dict(self.recorded.views)

    def plan(self) -> SetupPlan:
        """Plans in the order of execution: each part sees the effects of those before."""
        self._refuse_unreadable()
        self.warnings += [
            notice for name, view in self.views.items() if not is_stage(name) for notice in notices(view)
        ]
        actions = [
            *(FinishCapture(tuple(sorted(sites))) for sites in self.recorded.interrupted),
            *self._prepared(),
            *self._given_up(),
            *self._dropped(),
            *self._forgotten(),
            *self._begun(),
            *self._loaded(),
        ]
        lost = self.recorded.lost.items()
        settled = tuple(fault for name, fault in lost if name not in self.restarted)
        return SetupPlan(tuple(actions), tuple(self.warnings), self._to_capture(), settled)

    def _to_capture(self) -> dict[str, Table]:
        """Every table as it will be captured."""
        known = self._known_tables()
        return {name: to_capture(table, known.get(name)) for name, table in self.present.items()}

    def _refuse_unreadable(self) -> None:
        """Refuses a step of another release unless all views that it may have changed go anyway."""
        leaving = self.reloading | (self.recorded.views.keys() - self.views.keys())
        for step in self.recorded.unreadable:
            if not leaving >= set(step.views):
                raise step.refusal

    def _prepared(self) -> list[Action]:
        """Capture of every table that a view reads, and of those that are captured until now."""
        present = self._captured(self.recorded.views)
        refusals, prepared = Mistakes(), list[Action]()
        for view in self.views.values():
            with refusals.noted(view.name):
                self._check_deltas(view)
        refusals.check()
        for name, own in self._captured(self.views).items():
            with refusals.noted(kind=RollviewError):
                wanted = self._with_captured(self.sources[name], own, present.get(name, ()))
                checked = self._checked(self.sources[name], wanted)
                self.warnings += checked.warnings
                prepared.append(PrepareSource(name, tuple(t.qualified for t in wanted), checked.done))
        refusals.check()
        return prepared

    def _captured(self, views: Mapping[str, View]) -> dict[str, list[Table]]:
        return captured_tables(list(views.values()), self.sources)

    def _check_deltas(self, view: View) -> None:
        """Refuses a view whose delta the writers at its source cannot make."""
        if policy_of(view) in AT_SOURCE and (reason := obstacle_of(view, self.sources)):
            message = f"view {view.name} cannot have the policy {policy_of(view)}: {reason}"
            raise UnsupportedError(message, subject=view.name, hint="give it the policy deferred")

    def _given_up(self) -> Iterator[Action]:
        for step in self.recorded.unreadable:
            yield GiveUpStep(step.id, step.kind, step.views)
            for name in step.views:
                self._drop_with_readers(name)
            if step.concerns_all:
                reason = f"{step.kind} step {step.id} cannot be finished"
                self.forgotten |= dict.fromkeys(sorted(self.recorded.sites), reason)

    def _with_captured(self, source: Source, own: list[Table], present: Sequence[Table]) -> list[Table]:
        """The tables that views read, new ones and those until now, with the columns that they use."""
        there = {table.qualified: table for table in source.tables()}
        used: dict[str, set[str]] = {}
        for view in (*self.views.values(), *self.recorded.views.values()):
            for table in view.tables:
                used.setdefault(table.qualified, set()).update(table.columns)
        made = delta_tables([*self.views.values(), *self.recorded.views.values()], self.sources)
        for table in made.get(source.name, ()):
            there[table.qualified], used[table.qualified] = table, set(table.columns)
        names = dict.fromkeys(table.qualified for table in (*own, *present))
        found = {name: there[name].only(used[name]) for name in names if name in there}
        self.present |= found
        return list(found.values())

    def _checked(self, source: Source, tables: Sequence[Table]) -> SetupResult:
        made = SetupResult()
        if isinstance(source, MakesDeltas):
            # Tables that do not exist yet are ours, and need no permission to be captured.
            coming = {table.qualified for table in self._coming(source)}
            tables = [table for table in tables if table.qualified not in coming]
            made = source.check_deltas(definitions_of(self.views.values(), self.sources).get(source.name, ()))
        checked = source.check(tables)
        if needed := (*checked.needed, *made.needed):
            raise needs_administrator(source.name, needed)
        return replace(checked, done=(*made.done, *checked.done))

    def _coming(self, source: MakesDeltas) -> list[Table]:
        """The delta tables that are not there yet."""
        made = delta_tables([*self.views.values(), *self.recorded.views.values()], self.sources)
        found = [table for tables in made.values() for table in tables]
        known = source.known_deltas() if found else frozenset()
        return [table for table in found if table.qualified not in known]

    def _dropped(self) -> Iterator[Action]:
        for name in self.recorded.views:
            if name not in self.views:
                gone = owner(name) not in self.views
                reason = "its file is gone" if gone else f"{owner(name)} has no such part any more"
                yield DropView(name, reason)
                self._drop_with_readers(name)

    def _forgotten(self) -> Iterator[Action]:
        """Sites whose history is no longer usable."""
        self._forget(self._only_reloaded(), "all views that read it are reloaded")
        for sites in self.recorded.interrupted:
            if not sites <= self.recorded.sites:
                self._forget(sites & self.recorded.sites, "an interrupted capture cannot be finished")
        for site, reason in self.forgotten.items():
            yield RestartHistory(site, reason)
        for table, reason in (self._unread() | self._changed() | self._damaged()).items():
            self.restarted[table] = reason
            self.lost |= dict.fromkeys(self._drop_with_readers(table), table)
            yield RestartTable(table, reason)

    def _forget(self, sites: Set[str], reason: str) -> None:
        for site in sorted(sites - self.forgotten.keys()):
            self.forgotten[site] = reason
            for name, table in self.recorded.tables.items():
                if table.site == site:
                    self.lost |= dict.fromkeys(self._drop_with_readers(name), site)

    def _only_reloaded(self) -> set[str]:
        """Restarts the history of a site that only views to be reloaded read: the source may have lost it."""
        kept = {
            table.site
            for name, view in self.views.items()
            if name not in self.reloading
            for table in view.tables
        }
        read = {
            table.site
            for name, table in self._known_tables().items()
            if any(view in self.views for view in readers_of(self.left, name))
        }
        return read - kept

    def _unread(self) -> dict[str, str]:
        """Tables that views read again after none did for a while: their source stopped capturing them."""
        read = {table.qualified for view in self.recorded.views.values() for table in view.tables}
        names = [name for name in self._known_tables() if name not in read and self._used(name)]
        return dict.fromkeys(names, "no view has read it for a while")

    def _damaged(self) -> dict[str, str]:
        """Tables that have lost changes of columns that a view uses, and how."""
        known = self._known_tables()
        return {
            name: fault.message
            for name, fault in self.recorded.lost.items()
            if name in known and any(fault.concerns(table) for table in self._used(name))
        }

    def _changed(self) -> dict[str, str]:
        """Tables of which a column that a view uses has another type than before."""
        changed: dict[str, str] = {}
        for name, old in self._known_tables().items():
            kinds = dict(zip(old.columns, old.types, strict=True))
            for table in self._used(name):
                pairs = zip(table.columns, table.types, strict=True)
                if table.site != old.site or any(kinds.get(column, kind) != kind for column, kind in pairs):
                    changed[name] = "its columns have changed"
        return changed

    def _used(self, name: str) -> list[Table]:
        """A table, as each view uses it."""
        return [table for view in self.views.values() for table in view.tables if table.qualified == name]

    def _known_tables(self) -> dict[str, Table]:
        return {
            name: table
            for name, table in self.recorded.tables.items()
            if table.site not in self.forgotten and name not in self.restarted
        }

    def _begun(self) -> Iterator[Action]:
        """Begins the history of new tables; sources stop capturing tables that are not read any more."""
        known = self._known_tables()
        before = self._captured(self.recorded.views)
        for source, own in self._captured(self.views).items():
            read = {table.qualified for table in own}
            unread = [table.qualified for table in before.get(source, ()) if table.qualified not in read]
            if unread:
                yield StopCapture(source, tuple(unread))
            for site in dict.fromkeys(table.site for table in own):
                new = [each.qualified for each in own if each.site == site and each.qualified not in known]
                if new:
                    yield BeginHistory(site, tuple(new), self._why_begun(site))

    def _why_begun(self, site: str) -> str:
        if site in self.forgotten or any(self.recorded.tables[each].site == site for each in self.restarted):
            return "it starts over"
        return "tables are new" if site in self.recorded.sites else _NEW

    def _loaded(self) -> Iterator[Action]:
        loaded: set[str] = set()
        for name, view in self.views.items():
            if reason := self._why_loaded(view, loaded):
                stored = self._stored_before(view, reason, loaded)
                yield DeriveView(name, reason, stored) if stored else LoadView(name, reason)
                loaded.add(name)
            else:
                yield KeepView(name)

    def _why_loaded(self, view: View, loaded: Set[str]) -> str:
        """Why a view must be loaded; empty if it need not be."""
        if view.name not in self.recorded.views:
            return _NEW
        if view.name in self.reloading:
            return "asked for"
        # An input that was reloaded has lost its past, so its readers have to be reloaded, too.
        inputs = [table.name for table in view.tables if not table.source and table.name in loaded]
        if others := [name for name in inputs if not is_stage(name)]:
            return f"{others[0]} was loaded"
        if view.name in self.recorded.detached:
            return self.recorded.detached[view.name]
        if view.name in self.lost:
            return f"the history of {self.lost[view.name]} starts over"
        unchanged = view.name in self.left and self.recorded.has(view) and not inputs
        return "" if unchanged else _EDITED

    def _stored_before(self, view: View, reason: str, loaded: Set[str]) -> str:
        """The stored view from which the new definition can be derived; empty if there is none."""
        is_edited = reason == _EDITED or (is_stage(view.name) and reason == _NEW)
        if not is_edited or any(table.name in loaded for table in view.tables):
            return ""
        unfit = self.recorded.detached.keys() | self.lost.keys() | self.reloading
        for name, old in self.recorded.views.items():
            has_state = not is_full(old) or name in self.recorded.recomputed
            is_former = owner(name) == owner(view.name) and name not in unfit and has_state
            if is_former and derive(view.root.form, old.root.form) is not None:
                return name
        return ""

    def _drop_with_readers(self, name: str) -> list[str]:
        dropped = readers_of(self.left, name)
        for each in dropped:
            del self.left[each]
        return dropped


def readers_of(views: Mapping[str, View], name: str) -> list[str]:
    """The views that read a table, themselves or through other views; those furthest from it first.

    A view is one of its own readers. The views come dependencies first.
    """
    reading = {name}
    for view in views.values():
        if any(table.qualified in reading for table in view.tables):
            reading.add(view.name)
    return [view for view in reversed(list(views)) if view in reading]
