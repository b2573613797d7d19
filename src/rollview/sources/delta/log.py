"""Commits of a Delta table, read from `_delta_log` one by one, as the protocol lays them down.

`deltalake` gives the table at a version, but not what a single commit did, so that is read here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from rollview.errors import CaptureRefused
from rollview.sources.delta.definition import Definition, check_features, definition


@dataclass(frozen=True)
class DataFile:
    """A data or change file: where it is, its partition values as text, its rows, if these are known."""

    path: str
    partition: Mapping[str, str | None] | None
    rows: int | None


@dataclass(frozen=True)
class DeltaCommit:
    """What one version did: files with data added and removed, change files, a new definition.

    `stamp` tells it from any other commit of the same number.
    """

    version: int
    stamp: str
    time: float
    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    changes: tuple[DataFile, ...]
    definition: Definition | None


def commit_file(folder: Path, version: int) -> Path:
    """Where a version's commit is."""
    return folder / "_delta_log" / f"{version:020d}.json"


def read_commit(folder: Path, table: str, version: int) -> DeltaCommit | None:
    """A version's commit; None if its file is not there."""
    file = commit_file(folder, version)
    try:
        raw = file.read_bytes()
        written = file.stat().st_mtime
    except FileNotFoundError:
        return None
    actions = [json.loads(line) for line in raw.decode("utf-8").splitlines() if line.strip()]
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for action in actions:
        for kind, content in action.items():
            by_kind.setdefault(kind, []).append(content)
    metadata = by_kind.get("metaData", [])
    for each in (*by_kind.get("protocol", []), *metadata):
        check_features(table, each.get("readerFeatures"), each.get("configuration") or {})
    return DeltaCommit(
        version,
        stamp_of(raw),
        _time(by_kind.get("commitInfo", []), written),
        tuple(_data_file(folder, table, each) for each in by_kind.get("add", []) if each["dataChange"]),
        tuple(_data_file(folder, table, each) for each in by_kind.get("remove", []) if each["dataChange"]),
        tuple(_data_file(folder, table, each) for each in by_kind.get("cdc", [])),
        _definition(metadata[0]) if metadata else None,
    )


def stamp_of(content: bytes) -> str:
    """What tells a commit from another one."""
    return hashlib.sha256(content).hexdigest()[:16]


def local_path(folder: Path, path: str) -> str:
    """A path as it stands in the log: relative to the table, or a URI, and percent-encoded either way."""
    parts = urlsplit(path)
    if parts.scheme == "file":
        return unquote(parts.path)
    if parts.scheme and "://" in path:
        raise CaptureRefused(
            f"data file {path} is not on a local file system",
            subject=path,
            hint="mount it, or copy the table",
        )
    return str(folder / unquote(path))


def _data_file(folder: Path, table: str, action: Mapping[str, Any]) -> DataFile:
    if action.get("deletionVector"):
        check_features(table, ["deletionVectors"], {})
    stats = json.loads(action["stats"]) if action.get("stats") else {}
    return DataFile(
        local_path(folder, action["path"]), action.get("partitionValues"), stats.get("numRecords")
    )


def _definition(metadata: Mapping[str, Any]) -> Definition:
    return definition(metadata["id"], metadata["schemaString"], metadata.get("partitionColumns", ()))


def _time(infos: list[dict[str, Any]], written: float) -> float:
    """When the commit says it was made, in seconds; otherwise when its file was written."""
    for info in infos:
        milliseconds = info.get("inCommitTimestamp") or info.get("timestamp")
        if milliseconds:
            return float(milliseconds) / 1000
    return written
