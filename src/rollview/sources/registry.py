"""The kinds of sources a project file may name, and how each is opened."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

from rollview.errors import InputError
from rollview.sources.source import Source
from rollview.sources.workers import Threads, Workers

_KINDS = {
    "sqlite": ("rollview.sources.sqlite", "SQLiteSource"),
    "delta": ("rollview.sources.delta", "DeltaSource"),
    "files": ("rollview.sources.files", "FileSource"),
    "postgres": ("rollview.sources.postgres", "PostgresSource"),
    "mariadb": ("rollview.sources.mariadb", "MariaDBSource"),
}
"""Imported when first used: a project pays only for the drivers of its own sources."""

_DSNS = {
    "postgres": "postgresql://user:${PASSWORD}@host:5432/database",
    "mariadb": "mariadb://user:${PASSWORD}@host:3306/database",
}
"""Servers are reached by an address, not by a path."""


def open_source(
    name: str, kind: str, settings: Mapping[str, str], folder: Path, workers: Workers | None = None
) -> Source:
    """The source that an entry of the project file describes; paths are relative to `folder`.

    `workers` do large readings where several connections can share a snapshot; by default it is threads.
    """
    if kind not in _KINDS:
        close = get_close_matches(kind, _KINDS, 1)
        hint = f"did you mean `{close[0]}`?" if close else f"known types: {', '.join(_KINDS)}"
        raise InputError(f"source `{name}`: unknown type `{kind}`", subject=kind, hint=hint)
    options = dict(settings)
    module, attribute = _KINDS[kind]
    if kind == "postgres" and "path" in options and "dsn" not in options:
        # A server of the project's own, in a folder.
        options["dsn"] = f"embedded:{(folder / options.pop('path')).absolute()}"
    key, hint = ("dsn", f"dsn: {_DSNS[kind]}") if kind in _DSNS else ("path", "path: where its data is")
    if not (address := options.pop(key, "")):
        raise InputError(f"source `{name}` has no `{key}`", subject=name, hint=hint)
    make = getattr(import_module(module), attribute)
    opened: Source
    if kind == "postgres":
        opened = make(name, address, options, workers or Threads())
    else:
        opened = make(name, address if key == "dsn" else folder / address, options)
    return opened
