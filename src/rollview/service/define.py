"""define: the views as the files have them now, over the tables as the sources have them now, with types.

Nothing is changed by it, so that bad input is found before anything is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rollview.algebra.relation import Table
from rollview.algebra.view import View
from rollview.errors import UnsupportedError
from rollview.service.definitions import as_table, is_full, parse_views, read_view_files
from rollview.service.layout import Layout, layout_of
from rollview.service.project_file import ProjectFile
from rollview.service.session import Session
from rollview.service.sites import Sites


@dataclass(frozen=True)
class Defined:
    """A view as its file has it, and how it will be stored."""

    view: View
    layout: Layout


def define(project: ProjectFile, sites: Sites, session: Session) -> dict[str, Defined]:
    """All views of the project's files, dependencies first."""
    texts = read_view_files(project.view_files())
    tables: dict[str, Table] = {}
    for source in sites.sources.values():
        tables |= {table.qualified: table for table in source.tables()}
    views: dict[str, Defined] = {}
    for name, text in texts.items():
        view = parse_views({name: text}, tables)[name]
        layout = layout_of(session.spark, view)
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
