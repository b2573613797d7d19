"""The kinds of sources a project file may name, and how each is opened."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

from rollview.errors import InputError
from rollview.sources.source import Source

_KINDS = {
    "sqlite": ("rollview.sources.sqlite", "SQLiteSource"),
    "delta": ("rollview.sources.delta", "DeltaSource"),
    "files": ("rollview.sources.files", "FileSource"),
}
"""Imported when first used: a project pays only for the drivers of its own sources."""


def open_source(name: str, kind: str, settings: Mapping[str, str], folder: Path) -> Source:
    """The source that an entry of the project file describes; paths are relative to `folder`."""
    if kind not in _KINDS:
        close = get_close_matches(kind, _KINDS, 1)
        hint = f"did you mean `{close[0]}`?" if close else f"known types: {', '.join(_KINDS)}"
        raise InputError(f"source `{name}`: unknown type `{kind}`", thing=kind, hint=hint)
    options = dict(settings)
    path = options.pop("path", "")
    if not path:
        raise InputError(f"source `{name}` has no `path`", thing=name, hint="path: where its data is")
    module, attribute = _KINDS[kind]
    opened: Source = getattr(import_module(module), attribute)(name, folder / path, options)
    return opened
