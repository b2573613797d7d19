"""What a Delta table is: its columns and types, its identity, and whether it can be captured at all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rollview.errors import CaptureRefused, UnsupportedError
from rollview.rows import arrow_type

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
