"""setup: prepares sources for capture, loads new views, reloads changed ones, drops removed ones."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from rollview.algebra.bag import COUNT
from rollview.algebra.history import CSN
from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.catalog import CaptureStep, Lease, Step, UnreadableStep
from rollview.errors import NeedsAdministrator, RollviewError, UnsupportedError
from rollview.service.apply import LEASE as APPLY
from rollview.service.capture import LEASE as CAPTURE
from rollview.service.capture import capture, recover
from rollview.service.definitions import as_table, digest, is_full, notices, parse_views, read_view_files
from rollview.service.drop import drop, forget_tables, readers
from rollview.service.layout import Layout, layout_of
from rollview.service.load import load
from rollview.service.propagate import propagate
from rollview.service.refresh import with_dependencies
from rollview.service.step_timer import timed_step
from rollview.service.warehouse import Warehouse, unknown_view

PATIENCE_SECONDS = 30.0


@dataclass
class SetupReport:
    """What setup did, for people."""

    sources: dict[str, list[str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    loaded: dict[str, str] = field(default_factory=dict)
    unchanged: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)


def setup(warehouse: Warehouse, reload: Iterable[str] | None = None) -> SetupReport:
    """Brings the warehouse in line with the project file. Bad input is found before anything is changed."""
    report = SetupReport()
    defined = define(warehouse)
    views = {name: each.view for name, each in defined.items()}
    report.warnings += [notice for view in views.values() for notice in notices(view)]
    reloading = _to_load_again(warehouse, views, reload)
    known = set(warehouse.views)
    report.dropped += [name for name in warehouse.views if name not in views]
    _give_up_unreadable(warehouse, reloading | set(report.dropped))
    for reader in dict.fromkeys(each for name in report.dropped for each in readers(warehouse, name)):
        drop(warehouse, reader)
    _begin_anew(warehouse, views, reloading)
    _prepare_sources(warehouse, views.values(), report)
    for name, each in defined.items():
        if reason := _reason_to_load(warehouse, each.view, known, reloading, report.loaded):
            _propagate_inputs(warehouse, each.view)
            load(warehouse, each.view, each.layout, reason, PATIENCE_SECONDS)
            report.loaded[name] = reason
        else:
            report.unchanged.append(name)
    return report


def _give_up_unreadable(warehouse: Warehouse, leaving: set[str]) -> None:
    """Ends steps that this release cannot finish, once the views that they may have changed are dropped.

    Refused unless all of these views are dropped or reloaded anyway.
    """
    catalog = warehouse.catalog
    if not _unreadable(warehouse, leaving):
        return
    # Whoever could still be at work on such a step holds one of these, or that of a view, which `drop` takes.
    with catalog.lease(CAPTURE, PATIENCE_SECONDS) as lease, catalog.lease(APPLY, PATIENCE_SECONDS):
        steps = _unreadable(warehouse, leaving)
        for name in dict.fromkeys(name for step in steps for name in step.views):
            for reader in readers(warehouse, name):
                drop(warehouse, reader)
        if any(step.concerns_all for step in steps):
            forget_tables(warehouse, catalog.tables())
        for step in _unreadable(warehouse, leaving):
            catalog.abandon(lease, step)


def _unreadable(warehouse: Warehouse, leaving: set[str]) -> list[UnreadableStep]:
    found = [step for step in warehouse.catalog.unfinished() if isinstance(step, UnreadableStep)]
    for step in found:
        if not leaving.issuperset(step.views):
            raise step.refusal
    return found


def _to_load_again(warehouse: Warehouse, views: Mapping[str, View], reload: Iterable[str] | None) -> set[str]:
    """The views that were named, and those that read a source that was named; all for an empty list."""
    if reload is None:
        return set()
    reloading: set[str] = set()
    names = list(reload) or list(views)
    for name in names:
        if name in views:
            reloading.add(name)
        elif name in warehouse.sources:
            reloading |= {
                view for view, each in views.items() if any(table.source == name for table in each.tables)
            }
        else:
            raise unknown_view(name, views)
    return reloading


def _reason_to_load(
    warehouse: Warehouse, view: View, known: Container[str], reloading: Container[str], loaded: Container[str]
) -> str:
    """Why a view must be loaded; empty if it need not be."""
    if view.name not in known:
        return "first load"
    if view.name in reloading:
        return "asked for"
    # What a view reads has lost its past when it was loaded, so the reader has to begin there, too.
    if inputs := [table.name for table in view.tables if not table.source and table.name in loaded]:
        return f"{inputs[0]} was loaded"
    record = warehouse.catalog.views().get(view.name)
    return "" if record is not None and record.digest == digest(view) else "the definition changed"


@dataclass(frozen=True)
class Defined:
    """A view as its file has it, and how it will be stored."""

    view: View
    layout: Layout


def define(warehouse: Warehouse) -> dict[str, Defined]:
    """The views as the files have them now, over the tables as the sources have them now, with types."""
    texts = read_view_files(warehouse.project.view_files())
    tables: dict[str, Table] = {}
    for source in warehouse.sources.values():
        tables |= {table.qualified: table for table in source.tables()}
    views: dict[str, Defined] = {}
    for name, text in texts.items():
        view = parse_views({name: text}, tables)[name]
        layout = layout_of(warehouse.spark, view)
        views[name] = Defined(view, layout)
        _check_inputs(view, {table.name: views[table.name].view for table in view.tables if not table.source})
        tables[name] = as_table(view, tuple(kind for _, kind in layout.columns))
    return views


def _check_inputs(view: View, inputs: Mapping[str, View]) -> None:
    """A view that has no delta cannot feed one that lives on deltas."""
    for name, read in inputs.items():
        if is_full(read) and not is_full(view):
            message = f"view {view.name} is maintained by deltas, but {name}, which it reads, has none"
            hint = "give both the policy deferred, or both snapshot"
            raise UnsupportedError(message, subject=name, hint=hint)


def _prepare_sources(warehouse: Warehouse, views: Iterable[View], report: SetupReport) -> None:
    """Installs capture for every table that a view reads, and begins the history of new ones."""
    catalog = warehouse.catalog
    tables = {table.qualified: table for view in views for table in view.tables if table.source}
    _forget_changed(warehouse, tables, report)
    known = catalog.sites()
    for name, source in warehouse.sources.items():
        own = [table for table in tables.values() if table.source == name]
        if not own:
            continue
        with timed_step(warehouse.events, "setup", name):
            prepared = source.setup(own)
        report.sources[name] = list(prepared.done)
        report.warnings += prepared.warnings
        if prepared.needed:
            raise _needs_administrator(name, prepared.needed)
        registered = catalog.tables()
        for table in own:
            if table.qualified not in registered:
                # What an earlier catalog captured belongs to another history.
                warehouse.drop_table(warehouse.change_log(table))
            change_log_columns = (
                *zip(table.columns, table.types, strict=True),
                (COUNT, "bigint"),
                (CSN, "bigint"),
            )
            warehouse.change_log(table).create(change_log_columns)
        origins = {t.site: (name, source.current_position(t.site)) for t in own if t.site not in known}
        catalog.register(own, origins)
    capture(warehouse, PATIENCE_SECONDS)


def _begin_anew(warehouse: Warehouse, views: Mapping[str, View], reloading: Container[str]) -> None:
    """A site that only views to be reloaded read forgets its past, which the source may have lost."""
    kept = {table.site for name, view in views.items() if name not in reloading for table in view.tables}
    tables = warehouse.catalog.tables()
    read = {name for name in tables if any(view in views for view in readers(warehouse, name))}
    _forget_sites(warehouse, {tables[name].site for name in read} - kept)


def _forget_changed(warehouse: Warehouse, tables: Mapping[str, Table], report: SetupReport) -> None:
    """A site with a table that has other columns than before begins anew, and so do its views."""
    changed: dict[str, str] = {}
    for name, old in warehouse.catalog.tables().items():
        new = tables.get(name)
        if new is not None and (new.columns, new.types, new.site) != (old.columns, old.types, old.site):
            changed[old.site] = name
    for site, name in changed.items():
        report.warnings.append(f"{name} has other columns than before: the history of {site} begins anew")
    _forget_sites(warehouse, set(changed))


def _forget_sites(warehouse: Warehouse, sites: set[str]) -> None:
    """Drops the views that read these sites, and all that was captured of them."""
    catalog = warehouse.catalog
    if not sites and not catalog.pending(CaptureStep):
        return
    with catalog.lease(CAPTURE, PATIENCE_SECONDS) as lease:
        for step in catalog.pending(CaptureStep):
            sites = _with_interrupted(warehouse, lease, step, sites)
        tables = {name: table for name, table in catalog.tables().items() if table.site in sites}
        forget_tables(warehouse, tables)
        for step in catalog.pending(CaptureStep):
            catalog.abandon(lease, step)


def _with_interrupted(
    warehouse: Warehouse, lease: Lease, step: Step[CaptureStep], sites: set[str]
) -> set[str]:
    """Finishes a capture that died. Where that is impossible, its sites are forgotten with the others."""
    own = set(step.bounds.sites)
    if own <= warehouse.catalog.sites().keys():
        try:
            recover(warehouse, lease)
            return sites
        except RollviewError:
            # What it wrote to the logs of the other sites could not be told from what comes next.
            if not own <= sites:
                raise
    return sites | own


def _needs_administrator(source: str, statements: tuple[str, ...]) -> NeedsAdministrator:
    shown = "\n    ".join(statements)
    return NeedsAdministrator(
        f"source {source} needs its administrator:\n    {shown}",
        subject=source,
        hint="`rollview setup --statements FILE` writes this to a file for them",
        statements=statements,
    )


def _propagate_inputs(warehouse: Warehouse, view: View) -> None:
    """Views that this one reads must reach the present, where the new tables' history begins."""
    inputs = [table.name for table in view.tables if not table.source]
    present = warehouse.catalog.last_csn()
    for name in with_dependencies(warehouse, inputs):
        if not is_full(warehouse.view(name)):
            propagate(warehouse, name, present, PATIENCE_SECONDS)


def remove(warehouse: Warehouse) -> dict[str, list[str]]:
    """Takes back what setup left at the sources, or tells what only administrators can. The lake stays."""
    removed = {name: source.remove() for name, source in warehouse.sources.items()}
    return {
        name: [*each.done, *(f"for the administrator: {statement}" for statement in each.needed)]
        for name, each in removed.items()
    }
