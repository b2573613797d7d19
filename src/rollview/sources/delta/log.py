"""Commits of a Delta table, read from `_delta_log` one by one, as the protocol lays them down.

`deltalake` gives the table at a version, but not what a single commit did, so that is read here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rollview.ascii_text import lines_of
from rollview.errors import CaptureRefused, UnsupportedError
from rollview.rows import arrow_type
from rollview.sources.delta.place import TablePlace

# The definition of a Delta table: columns and types, identity, and whether it can be captured at all.

_TYPES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
_FEATURES = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
"""Reader features that change nothing in how data files are to be read."""

_REFUSALS = {
    "deletionVectors": (
        "deletion vectors hide rows of its data files",
        "set delta.enableDeletionVectors to false, run REORG TABLE ... APPLY (PURGE), then DROP FEATURE",
    ),
    "columnMapping": (
        "column mapping gives columns other names in its data files",
        "copy the table to one without delta.columnMapping.mode",
    ),
}


@dataclass(frozen=True)
class Definition:
    """Columns with Spark SQL types, partition columns, and the identity that a new table would not have."""

    identity: str
    columns: tuple[tuple[str, str], ...]
    partitions: tuple[str, ...]

    @cached_property
    def types(self) -> Mapping[str, str]:
        """The columns' Spark SQL types."""
        return dict(self.columns)

    def followed_by(self, new: Definition) -> Definition | None:
        """The same columns after the table was altered; None if they are not all there, as they were.

        A column that is new concerns nobody.
        """
        if new.identity != self.identity or any(new.types.get(name) != kind for name, kind in self.columns):
            return None
        partitions = tuple(name for name in new.partitions if name in self.types)
        return Definition(self.identity, self.columns, partitions)

    def capturable(self) -> Definition:
        """Without columns that could not be captured."""
        columns = tuple((name, kind) for name, kind in self.columns if _is_supported(kind))
        names = [name for name, _ in columns]
        return Definition(self.identity, columns, tuple(name for name in self.partitions if name in names))


def definition(identity: str, schema: str, partitions: Iterable[str]) -> Definition:
    """The definition that a schema in Delta's JSON gives."""
    columns = tuple((field["name"], _type_name(field)) for field in json.loads(schema)["fields"])
    return Definition(identity, columns, tuple(partitions))


def _type_name(field: Mapping[str, Any]) -> str:
    kind = field["type"]
    if not isinstance(kind, str):
        return _nested(kind)
    if field.get("metadata", {}).get("__COLLATIONS"):
        return f"{kind} with a collation"
    return _TYPES.get(kind, kind)


def _nested(kind: Mapping[str, Any]) -> str:
    if kind["type"] == "array":
        return f"array<{_type_name({'type': kind['elementType']})}>"
    if kind["type"] == "struct":
        fields = [f"{each['name']}:{_type_name(each)}" for each in kind["fields"]]
        return f"struct<{','.join(fields)}>"
    return str(kind["type"])


def check_columns(table: str, columns: Iterable[tuple[str, str]]) -> None:
    """Refuses a table with a column of a type that changes cannot be captured of."""
    for name, kind in columns:
        if not _is_supported(kind):
            raise CaptureRefused(
                f"column {name} of {table} has type {kind}, which is not supported",
                subject=f"{table}.{name}",
                hint="leave the column out of the table, or keep its parts in columns of simple types",
            )


def _is_supported(kind: str) -> bool:
    try:
        arrow_type(kind)
    except UnsupportedError:
        return False
    return True


def check_features(
    table: str, features: Iterable[str] | None, configuration: Mapping[str, str | None]
) -> None:
    """Refuses a table whose data files cannot be read as they are."""
    # Column mapping may be listed and not used; names in the files then are the columns' own.
    needed = set(features or ()) - _FEATURES - {"columnMapping"}
    if (configuration.get("delta.columnMapping.mode") or "none") != "none":
        needed.add("columnMapping")
    for feature in sorted(needed):
        reason, hint = _REFUSALS.get(
            feature, (f"it needs the reader feature {feature}", "copy it to a table without that feature")
        )
        raise CaptureRefused(f"Delta table {table} cannot be read: {reason}", subject=table, hint=hint)


@dataclass(frozen=True)
class DataFile:
    """A data or change file: where it is, how the log names it, its size, its partition values as text, its
    rows; the numbers if they are known.
    """

    path: str
    logged: str
    size: int | None
    partition: Mapping[str, str | None] | None
    rows: int | None


@dataclass(frozen=True)
class DeltaCommit:
    """The changes of one version: files with data added and removed, change files, a new definition.

    `stamp` distinguishes it from any other commit of the same number.
    """

    version: int
    stamp: str
    time: float
    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    changes: tuple[DataFile, ...]
    definition: Definition | None


def read_commit(place: TablePlace, table: str, version: int) -> DeltaCommit | None:
    """A version's commit; None if its file is not there."""
    file = place.commit(version)
    try:
        raw = file.read_bytes()
        written = file.stat().st_mtime
    except FileNotFoundError:
        return None
    actions = [json.loads(line) for line in lines_of(raw.decode("utf-8")) if line.strip()]
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
        tuple(_data_file(place, table, each) for each in by_kind.get("add", []) if each["dataChange"]),
        tuple(_data_file(place, table, each) for each in by_kind.get("remove", []) if each["dataChange"]),
        tuple(_data_file(place, table, each) for each in by_kind.get("cdc", [])),
        _definition(metadata[0]) if metadata else None,
    )


def stamp_of(content: bytes) -> str:
    """A hash that distinguishes a commit from any other."""
    return hashlib.sha256(content).hexdigest()[:16]


def _data_file(place: TablePlace, table: str, action: Mapping[str, Any]) -> DataFile:
    if action.get("deletionVector"):
        check_features(table, ["deletionVectors"], {})
    stats = json.loads(action["stats"]) if action.get("stats") else {}
    path = action["path"]
    rows = stats.get("numRecords")
    return DataFile(place.located(path), path, action.get("size"), action.get("partitionValues"), rows)


def _definition(metadata: Mapping[str, Any]) -> Definition:
    return definition(metadata["id"], metadata["schemaString"], metadata.get("partitionColumns", ()))


def _time(infos: list[dict[str, Any]], written: float) -> float:
    """When the commit says it was made, in seconds; otherwise when its file was written."""
    for info in infos:
        milliseconds = info.get("inCommitTimestamp") or info.get("timestamp")
        if milliseconds:
            return float(milliseconds) / 1000
    return written
