"""setup: prepares sources for capture, loads new views, reloads changed ones, drops removed ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from rollview.algebra.history import CSN
from rollview.algebra.view import Table, View
from rollview.catalog import ViewDropped
from rollview.errors import InputError
from rollview.service.capture import capture
from rollview.service.definitions import as_table, digest, parse_views, policy_of, read_view_files
from rollview.service.layout import layout_of
from rollview.service.load import load
from rollview.service.propagate import propagate
from rollview.service.refresh import with_dependencies
from rollview.service.warehouse import Warehouse, unknown_view
from rollview.spark import COUNT

Progress = Callable[[str], None]
PATIENCE_SECONDS = 30.0


@dataclass
class SetupReport:
    """What setup did, for people."""

    sources: dict[str, list[str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    loaded: dict[str, str] = field(default_factory=dict)
    unchanged: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)


def setup(
    warehouse: Warehouse, reload: Iterable[str] | None = None, progress: Progress = lambda _: None
) -> SetupReport:
    """Brings the warehouse in line with the project file. Bad input is found before anything is changed."""
    report = SetupReport()
    views = define(warehouse)
    again = set(views) if reload is not None and not list(reload) else set(reload or ())
    for name in again - views.keys():
        raise unknown_view(name, views)
    for view in views.values():
        layout_of(warehouse.spark, view)
    records = warehouse.catalog.views()
    for name in [name for name in records if name not in views]:
        drop(warehouse, name)
        report.dropped.append(name)
    _prepare_sources(warehouse, views.values(), report, progress)
    for name, view in views.items():
        record = warehouse.catalog.views().get(name)
        reason = (
            "first load" if record is None else "the definition changed" if record.digest != digest(view)
            else "asked for" if name in again else ""
        )  # fmt: skip
        if not reason:
            report.unchanged.append(name)
            continue
        progress(f"load {name}")
        _propagate_inputs(warehouse, view)
        load(warehouse, view, reason, PATIENCE_SECONDS)
        report.loaded[name] = reason
    return report


def define(warehouse: Warehouse) -> dict[str, View]:
    """The views as the files have them now, over the tables as the sources have them now, with types."""
    texts = read_view_files(warehouse.project.view_files())
    tables: dict[str, Table] = {}
    for source in warehouse.sources.values():
        tables |= {table.qualified: table for table in source.tables()}
    views: dict[str, View] = {}
    for name, text in texts.items():
        views[name] = parse_views({name: text}, tables)[name]
        layout = layout_of(warehouse.spark, views[name])
        tables[name] = as_table(views[name], tuple(kind for _, kind in layout.columns))
    return views


def _prepare_sources(
    warehouse: Warehouse, views: Iterable[View], report: SetupReport, progress: Progress
) -> None:
    """Installs capture for every table that a view reads, and begins the history of new ones."""
    catalog = warehouse.catalog
    tables = {table.qualified: table for view in views for table in view.tables if table.source}
    _forget_changed(warehouse, tables, report)
    known = catalog.sites()
    for name, source in warehouse.sources.items():
        own = [table for table in tables.values() if table.source == name]
        if not own:
            continue
        progress(f"set up {name}")
        prepared = source.setup(own)
        report.sources[name] = list(prepared.done)
        report.warnings += prepared.warnings
        if prepared.needed:
            statements = "\n    ".join(prepared.needed)
            raise InputError(f"source {name} needs its administrator:\n    {statements}", thing=name)
        for table in own:
            change_log_columns = (
                *zip(table.columns, table.types, strict=True),
                (COUNT, "bigint"),
                (CSN, "bigint"),
            )
            warehouse.change_log(table).create(change_log_columns)
        origins = {t.site: (name, source.origin(t.site)) for t in own if t.site not in known}
        catalog.register(own, origins)
    capture(warehouse, PATIENCE_SECONDS)


def _forget_changed(warehouse: Warehouse, tables: Mapping[str, Table], report: SetupReport) -> None:
    """A table whose columns are no longer those that were captured begins anew, and so do its views."""
    catalog = warehouse.catalog
    for name, old in catalog.tables().items():
        new = tables.get(name)
        if new is None or (new.columns, new.types, new.site) == (old.columns, old.types, old.site):
            continue
        for view, definition in warehouse.views.items():
            if any(table.qualified == name for table in definition.tables):
                drop(warehouse, view)
        catalog.unregister([name])
        warehouse.drop_table(warehouse.change_log(old))
        report.warnings.append(f"{name} has other columns than before: its history begins anew")


def _propagate_inputs(warehouse: Warehouse, view: View) -> None:
    """Views that this one reads must reach the present, where the new tables' history begins."""
    inputs = [table.name for table in view.tables if not table.source]
    for name in with_dependencies(warehouse, inputs):
        if policy_of(warehouse.view(name)) != "snapshot":
            propagate(warehouse, name, wait_seconds=PATIENCE_SECONDS)


def drop(warehouse: Warehouse, name: str) -> None:
    """Forgets a view and removes its tables from the lake."""
    catalog = warehouse.catalog
    with catalog.lease(f"propagate:{name}", PATIENCE_SECONDS) as lease:
        for unfinished in (*catalog.pending("load", name), *catalog.pending("propagate", name)):
            catalog.abandon(lease, unfinished)
        step = catalog.begin(lease, "drop", name, {})
        catalog.finish(lease, step, ViewDropped(name))
        for table in (warehouse.view_table(name), warehouse.delta_table(name)):
            warehouse.drop_table(table)


def remove(warehouse: Warehouse) -> dict[str, list[str]]:
    """Takes back what setup left at the sources. The lake stays as it is."""
    return {name: list(source.remove().done) for name, source in warehouse.sources.items()}
