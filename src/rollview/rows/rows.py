"""Rows are an Arrow table where they are few, and a description of Parquet files where they are many.

Neither needs Spark, so that sources and catalog stay free of it; `spark` makes a bag of either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class ColumnRanges:
    """Values of a column: those within one of the closed ranges, of which there is at least one."""

    column: str
    ranges: tuple[tuple[Any, Any], ...]


@dataclass(frozen=True)
class ScanFile:
    """A Parquet file; `constants` gives columns that are not in the file but the same for all its rows.

    Those are a Delta table's partition values, and `_count` where all rows were added or removed.
    """

    path: str
    constants: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FileScan:
    """The rows of some Parquet files; `schema` gives the wanted columns with their Spark SQL types.

    Rows that are not `within` all ranges are left out. Whoever makes a scan may use that to read less only: a
    scan may hold more rows than were looked for.
    """

    files: tuple[ScanFile, ...]
    schema: tuple[tuple[str, str], ...]
    within: tuple[ColumnRanges, ...] = ()


Rows = pa.Table | FileScan
