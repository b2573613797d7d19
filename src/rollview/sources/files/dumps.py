"""Dumps in a table's folder: which there are, in which order, whether they are complete, and their rows.

A dump is one file, or one sub-folder of part files, all CSV or all Parquet. Dumps follow each other by name,
numbers in names by value (`dump_9` before `dump_10`). Names that begin with `_` or `.` or end with `.tmp` or
`.part` are still being written. So is a file that changed less than `settle_seconds` ago; it and all dumps
after it wait.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from rollview.ascii_text import whole_number
from rollview.errors import CaptureRefused, DumpError, OptionError, SourceChanged, UnsupportedError
from rollview.rows import FileScan, ScanFile, arrow_schema, arrow_type, spark_type
from rollview.sources.files.place import DumpPlace, Entry
from rollview.sources.files.state import read_files
from rollview.sources.source import reload_hint

_UNFINISHED = (".tmp", ".part")
_FORMATS = ("csv", "parquet")


@dataclass(frozen=True)
class Dump:
    """A complete dump: its name, its files, and what they looked like from outside when they were listed."""

    name: str
    place: DumpPlace
    parts: tuple[Entry, ...]
    signature: str

    @property
    def format(self) -> str:
        """`csv` or `parquet`."""
        return Path(self.parts[0].name).suffix[1:].lower()

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """Its files, to be read."""
        self.place.fetch(self.parts)
        return tuple(part.here() for part in self.parts)

    @cached_property
    def source_txid(self) -> int:
        """A number that identifies a dump by its name; earlier dumps may be gone, so none are counted."""
        return int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8]) >> 1

    def is_unchanged(self) -> bool:
        return _signature(self.parts) == self.signature


def natural(name: str) -> tuple[tuple[tuple[int, int, str], ...], str]:
    """Sorts names as people do: numbers in them by value."""
    stem = name.rsplit(".", 1)[0] if name.lower().endswith(_FORMATS) else name
    parts = [(part, whole_number(part)) for part in re.split("([0-9]+)", stem) if part]
    return tuple((1, 0, part) if number is None else (0, number, "") for part, number in parts), name


def complete_dumps(place: DumpPlace, settle_seconds: float) -> list[Dump]:
    """The dumps of a table in their order, up to the first one that is not complete."""
    found: list[Dump] = []
    for entry in sorted(place.entries(), key=lambda entry: natural(entry.name)):
        if not _counts(entry):
            continue
        try:
            parts = _parts(entry) if entry.is_folder else (entry,)
            if not parts and entry.is_folder and not _is_unfinished(entry):
                continue
            signature = _signature(parts)
            if signature is None or _is_unfinished(entry) or not _has_settled(entry, parts, settle_seconds):
                break
        except FileNotFoundError:
            # Somebody is at work here; the next poll will show the result.
            break
        found.append(Dump(entry.name, place, parts, signature))
    return found


def _counts(entry: Entry) -> bool:
    if entry.name.startswith(("_", ".")) or entry.name.lower().endswith(_UNFINISHED):
        return False
    return entry.is_folder or Path(entry.name).suffix[1:].lower() in _FORMATS


def _parts(folder: Entry) -> tuple[Entry, ...]:
    parts = [part for part in folder.below() if part.is_file and _counts(part)]
    return tuple(sorted(parts, key=lambda part: part.name))


def _is_unfinished(entry: Entry) -> bool:
    """A sub-folder in which some writer still keeps its temporary files."""
    return entry.is_folder and any(
        part.name.lower().endswith(_UNFINISHED) or part.name == "_temporary" for part in entry.below()
    )


def _has_settled(entry: Entry, parts: tuple[Entry, ...], seconds: float) -> bool:
    # A time in the future by more than that is a clock that was set back, and not worth waiting for.
    now = time.time()
    return all(abs(now - each.modified()) >= seconds for each in (entry, *parts))


def _signature(parts: tuple[Entry, ...]) -> str | None:
    """Names, sizes and times of the files; None if one is gone."""
    try:
        states = [part.looks() for part in parts]
    except FileNotFoundError:
        return None
    return hashlib.sha256(repr(states).encode()).hexdigest()[:16]


# The rows of a dump, by declared or inferred types.
#
# CSV has a header. An empty field is NULL, an empty field in quotes an empty string. Types come from the
# option `schema.TABLE`; without it Arrow infers them from the first dump: whole numbers are `bigint`, others
# `double`, ISO dates `date`, ISO times `timestamp_ntz` or, with a zone, `timestamp`, the rest `string`.
# Parquet brings its types along.

Columns = tuple[tuple[str, str], ...]
"""Columns with their Spark SQL types."""


@dataclass(frozen=True)
class CsvFormat:
    """How the legacy system writes CSV."""

    delimiter: str = ","
    encoding: str = "utf8"


def declared_columns(table: str, text: str) -> Columns:
    """The columns of an option such as `cust_id bigint, name string`."""
    columns = []
    for part in re.split(r",(?![^(]*\))", text):
        match = re.fullmatch(r"\s*(\S+)\s+(.+?)\s*", part, re.ASCII)
        if match is None:
            raise OptionError(
                f"schema.{table}: `{part.strip()}` is not a column with a type",
                subject=table,
                hint="write it as `cust_id bigint, amount decimal(15,2)`",
            )
        kind = re.sub(r"\s+", "", match[2].lower())
        try:
            is_nested = pa.types.is_nested(arrow_type(kind))
        except UnsupportedError as error:
            raise OptionError(f"schema.{table}: column {match[1]}: {error.message}", subject=table) from None
        if is_nested:
            raise OptionError(
                f"schema.{table}: column {match[1]}: dumps have simple types alone", subject=table
            )
        columns.append((match[1], kind))
    return tuple(columns)


def _simple_type(kind: pa.DataType) -> str | None:
    """The Spark SQL type of a column; None if dumps of such columns cannot be compared."""
    try:
        return None if pa.types.is_nested(kind) else spark_type(kind)
    except UnsupportedError:
        return None


def columns_of_dump(table: str, dump: Dump, how: CsvFormat) -> Columns:
    """The columns of a dump, with the types it has or that Arrow infers from all its rows."""
    if dump.format == "csv":
        schema = _read_csv(table, dump, how, {}).schema
        return tuple((field.name, _inferred(field.type)) for field in schema)
    columns = []
    with readable(table, dump):
        schema = pq.read_schema(dump.files[0])
    for field in schema:
        kind = _simple_type(field.type)
        if kind is None:
            message = f"column {field.name} of {table} has type {field.type}, which is not supported"
            raise CaptureRefused(message, subject=f"{table}.{field.name}")
        columns.append((field.name, kind))
    return tuple(columns)


def read_dump(table: str, dump: Dump, columns: Columns, how: CsvFormat) -> pa.Table:
    """All rows of a dump, these columns in these types; a dump that has not got them is refused."""
    if dump.format == "csv":
        types = {name: arrow_type(kind) for name, kind in columns}
        rows = _read_csv(table, dump, how, types)
        check_columns(table, dump, [*rows.column_names], columns)
        rows = rows.select([name for name, _ in columns])
    else:
        check_parquet(table, dump, columns)
        with readable(table, dump):
            rows = read_files(FileScan(tuple(ScanFile(str(path)) for path in dump.files), columns))
    check_unchanged(table, dump)
    return rows


def check_unchanged(table: str, dump: Dump) -> None:
    """Refuses what was read from a dump that is not the same any more."""
    if not dump.is_unchanged():
        raise DumpError(
            f"dump {dump.name} of {table} changed while it was read",
            subject=f"{table}/{dump.name}",
            hint="write dumps under a name that ends in .tmp, and rename them when complete",
        )


def check_parquet(table: str, dump: Dump, columns: Columns) -> None:
    """Refuses a Parquet dump that has not these columns with these types."""
    for path in dump.files:
        with readable(table, dump):
            schema = pq.read_schema(path)
        check_columns(table, dump, schema.names, columns)
        for name, kind in columns:
            if spark_type(schema.field(name).type) != kind:
                raise _changed(table, dump, f"column {name} has type {schema.field(name).type}, not {kind}")


def check_columns(table: str, dump: Dump, names: list[str], columns: Columns) -> None:
    """Refuses a dump without some of the columns, in any order; new ones concern nobody."""
    gone = [f"column {name} is gone" for name, _ in columns if name not in names]
    if gone:
        raise _changed(table, dump, "; ".join(gone))


def _changed(table: str, dump: Dump, what: str) -> SourceChanged:
    return SourceChanged(
        f"dump {dump.name} of {table} has different columns than the dumps before it: {what}",
        subject=f"{table}/{dump.name}",
        hint=reload_hint(table),
    )


def _read_csv(table: str, dump: Dump, how: CsvFormat, types: Mapping[str, pa.DataType]) -> pa.Table:
    convert = csv.ConvertOptions(
        column_types=dict(types),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        timestamp_parsers=[csv.ISO8601, "%Y-%m-%d %H:%M:%S.%f"] if types else None,
    )
    parse = csv.ParseOptions(delimiter=how.delimiter, newlines_in_values=True)
    read = csv.ReadOptions(encoding=how.encoding)
    parts = []
    for path in dump.files:
        with readable(table, dump):
            parts.append(csv.read_csv(path, read_options=read, parse_options=parse, convert_options=convert))
    return pa.concat_tables(parts, promote_options="permissive" if not types else "none")


@contextmanager
def readable(table: str, dump: Dump) -> Iterator[None]:
    """Turns what Arrow says about the content of a dump into an error of the dump."""
    try:
        yield
    except FileNotFoundError as error:
        raise DumpError(
            f"dump {dump.name} of {table} vanished while it was read",
            subject=f"{table}/{dump.name}",
            hint="leave each dump in its place until the next one has been captured",
        ) from error
    except pa.ArrowInvalid as error:
        hint = "replace the dump with a correct one"
        if dump.format == "csv":
            hint += f", or declare the columns with the option schema.{table.rpartition('.')[2]}"
        raise DumpError(
            f"dump {dump.name} of {table} cannot be read: {error}",
            subject=f"{table}/{dump.name}",
            hint=hint,
        ) from error


def _inferred(kind: pa.DataType) -> str:
    if pa.types.is_null(kind) or pa.types.is_time(kind):
        return "string"
    return spark_type(kind)


def empty_rows(columns: Columns) -> pa.Table:
    """A table without rows, as before the first dump."""
    return arrow_schema(columns).empty_table()
