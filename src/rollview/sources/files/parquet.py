"""Parquet files read by Arrow: declared types, constants per file, row groups skipped by statistics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from rollview.rows import FileScan, ScanFile, arrow_schema, arrow_type
from rollview.sources.files.key_filter import KeyFilter

# Spark's older timestamps (INT96) would be read in nanoseconds, which end in the year 2262.
_FORMAT = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")


def read_files(scan: FileScan, filters: Sequence[KeyFilter] = ()) -> pa.Table:
    """The rows of a scan as an Arrow table; with `filters`, those that pass them all."""
    schema = arrow_schema(scan.schema)
    local = fs.LocalFileSystem()
    fragments = [
        _FORMAT.make_fragment(file.path, local, partition_expression=_constants(file, schema))
        for file in scan.files
    ]
    dataset = ds.FileSystemDataset(fragments, schema, _FORMAT, local)
    condition = None
    for each in filters:
        condition = each.filter() if condition is None else condition & each.filter()
    return dataset.to_table(columns=schema.names, filter=condition)


def _constants(file: ScanFile, schema: pa.Schema) -> pc.Expression:
    """What is known of all rows of a file, as Arrow's datasets want it said."""
    known = pc.scalar(True)
    for name, value in file.constants.items():
        if name not in schema.names:
            continue
        field = pc.field(name)
        fact = field.is_null() if value is None else field == pa.scalar(value, schema.field(name).type)
        known = known & fact
    return known


def count_rows(paths: Iterable[str]) -> int:
    """How many rows files have, by their footers."""
    return sum(pq.read_metadata(path).num_rows for path in paths)


def has_types(paths: Iterable[str], columns: Iterable[tuple[str, str]]) -> bool:
    """Whether files hold columns in the very types that Spark gives them, so that it can read them itself."""
    wanted = dict(columns)
    return all(
        field.name not in wanted or field.type == arrow_type(wanted[field.name])
        for path in paths
        for field in pq.read_schema(path)
    )
