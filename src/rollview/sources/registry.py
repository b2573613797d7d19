"""The kinds of sources a project file may name, and how each is opened.

Other packages add kinds of their own through the entry point group `rollview.sources`: the name is the `type`
in the project file, the object a function from `SourceSettings` to a `Source`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from rollview.errors import InputError
from rollview.imports import require
from rollview.sources.settings import SourceSettings, Threads, Workers, temporary_folder
from rollview.sources.source import Source

GROUP = "rollview.sources"

_BUILT_IN = {
    "sqlite": "rollview.sources.sqlite:SQLiteSource.open",
    "delta": "rollview.sources.delta:DeltaSource.open",
    "files": "rollview.sources.files:FileSource.open",
    "postgres": "rollview.sources.postgres:PostgresSource.open",
    "mariadb": "rollview.sources.mariadb:MariaDBSource.open",
}
"""Imported when first used: a project pays only for the drivers of its own sources."""

_SERVERS = frozenset({"postgres", "mariadb"})
"""Kinds whose drivers are in the extra of the same name."""


def open_source(
    name: str,
    kind: str,
    settings: Mapping[str, str],
    folder: Path,
    workers: Workers | None = None,
    new_folder: Callable[[], Path] = temporary_folder,
) -> Source:
    """The source that an entry of the project file describes; paths are relative to `folder`.

    `workers` do large readings where several connections can share a snapshot; by default it is threads.
    `new_folder` makes a folder for large transactions, where Spark can read it.
    """
    known = _kinds()
    if kind not in known:
        close = get_close_matches(kind, known, 1)
        hint = f"did you mean `{close[0]}`?" if close else f"known types: {', '.join(known)}"
        raise InputError(f"source `{name}`: unknown type `{kind}`", subject=kind, hint=hint)
    if kind in _SERVERS:
        require(kind, f"source `{name}` of type {kind}")
    try:
        opener = known[kind].load()
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"source `{name}`: type `{kind}` cannot be loaded from {known[kind].value}: {error}",
            subject=kind,
            hint=f"is the package that brings `{kind}` installed as a whole?",
        ) from error
    opened: Source = opener(SourceSettings(name, dict(settings), folder, workers or Threads(), new_folder))
    return opened


def _kinds() -> dict[str, EntryPoint]:
    """All kinds by name. Those of rollview keep their names, whatever is installed beside it."""
    installed = {each.name: each for each in entry_points(group=GROUP)}
    return installed | {name: EntryPoint(name, value, GROUP) for name, value in _BUILT_IN.items()}
