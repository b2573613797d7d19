"""A folder of dumps of a legacy system as a source.

`path/customer/` holds the dumps of table `customer`; `dumps` says what a dump is and how dumps are ordered.
Each new one is one transaction of that table, found by comparing it with the one before, so a dump must stay
until the next one has been captured. The newest one at `origin` is the initial state. A dump whose name
comes before the last one taken is never looked at.

A source txid is made from the dump's name. A log position names the dump that was the initial state, the last
one taken, how that looked from outside, and the columns, so that types inferred once stay as they are.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rollview.errors import CaptureRefused, LogLost, SourceChanged, SourceMissing
from rollview.sources.bucket import Bucket, dataset_at
from rollview.sources.files.dumps import Columns, Dump, check_unchanged, natural, readable
from rollview.sources.files.folder import TableFolder, table_folders
from rollview.sources.files.key_filter import comparable, look_up_all
from rollview.sources.settings import check_options
from rollview.sources.source import (
    Batch,
    CapturedTransaction,
    Comparison,
    Lookup,
    ReadResult,
    Seen,
    SetupResult,
    SourceSettings,
    SourceTxids,
    Table,
    reload_hint,
)

_KEEP = "keep each dump until the next one has been captured"


@dataclass(frozen=True)
class LogPosition:
    """The dump taken last and the first one of all; both None where a table began without a dump."""

    origin: str | None
    name: str | None
    signature: str | None
    columns: Columns

    @classmethod
    def parse(cls, text: str) -> LogPosition:
        """The log position from its JSON text."""
        fields = json.loads(text)
        columns = tuple((name, kind) for name, kind in fields["columns"])
        return cls(fields["origin"], fields["name"], fields["signature"], columns)

    def __str__(self) -> str:
        return json.dumps(asdict(self))


class FileSource:
    """Tables that come as dumps, each in a sub-folder of one folder.

    Options: `key.TABLE` (columns), `schema.TABLE` (columns with types, for CSV), `settle_seconds` (how long a
    file must have been left alone, 1 by default), `delimiter` and `encoding` of CSV files.
    """

    kind = "files"

    def __init__(self, name: str, place: Path | Bucket, options: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self._path = place.absolute() if isinstance(place, Path) else place
        self._options = dict(options or {})
        check_options(name, self._options, ["key.", "schema.", "settle_seconds", "delimiter", "encoding"])
        self._lock = threading.Lock()
        self._folders = table_folders(name, self._path, self._options)

    @classmethod
    def open(cls, settings: SourceSettings) -> FileSource:
        return cls(settings.name, settings.place(), settings.without_place())

    def tables(self) -> tuple[Table, ...]:
        """Every sub-folder with a dump or a declared schema."""
        with self._lock:
            found = table_folders(self.name, self._path, self._options)
            self._folders = {name: self._folders.get(name, folder) for name, folder in found.items()}
            folders = list(self._folders.values())
        return tuple(table for folder in folders if (table := folder.table()) is not None)

    def setup(self, tables: Sequence[Table]) -> SetupResult:
        """Nothing is installed."""
        return self.check(tables)

    def check(self, tables: Sequence[Table]) -> SetupResult:
        """The newest dump of each table is read and its key checked."""
        done = []
        for table in tables:
            folder = self._folder(table.site)
            dumps = folder.dumps()
            if dumps:
                folder.check(dumps[-1], _columns(table))
            last = f"its newest dump is {dumps[-1].name}" if dumps else "it has no dump yet"
            done.append(f"{table.qualified}: {last}; nothing to install")
        return SetupResult(done=tuple(done))

    def remove(self) -> SetupResult:
        """Nothing was left, so nothing is taken back."""
        return SetupResult(done=(f"{self.name}: nothing was installed beside the dumps",))

    def describe(self) -> Mapping[str, str]:
        return {"transactions": "new dumps, by comparison", "reads": "exact, from the newest dump"}

    def dataset(self, table: str) -> tuple[str, str]:
        """The folder of the table's dumps."""
        return dataset_at(self._path, table)

    def current_position(self, site: str) -> str:
        """The newest dump."""
        folder = self._folder(site)
        dumps = folder.dumps()
        columns = folder.columns()
        if not columns:
            raise CaptureRefused(
                f"{site} has no dump yet, so its columns are not known",
                subject=site,
                hint=f"declare them with the option schema.{site.rpartition('.')[2]}, or wait for a dump",
            )
        last = dumps[-1] if dumps else None
        name = last.name if last else None
        return str(LogPosition(name, name, last.signature if last else None, columns))

    def capture(self, site: str, after: str, limit: int) -> Batch:  # noqa: ARG002
        """The next dump, compared with the one taken last. Dumps are large, so one is a batch."""
        reached = LogPosition.parse(after)
        folder = self._folder(site)
        for dump in folder.dumps():
            if dump.name == reached.name and dump.signature != reached.signature:
                # As soon as it is known, not only when the next dump comes.
                raise _rewritten(site, dump.name)
            if reached.name is None or natural(dump.name) > natural(reached.name):
                return self._compare(folder, reached, dump)
        return Batch((), after)

    def replay(self, site: str, after: str, source_txids: Sequence[int], upto: str) -> Batch:
        """The same comparison; both dumps must be as they were."""
        if not source_txids:
            return Batch((), upto)
        folder, until = self._folder(site), LogPosition.parse(upto)
        dump = _taken(folder, until.name, until.signature)
        assert dump is not None, "a batch with a source txid ended at a dump"
        return self._compare(folder, LogPosition.parse(after), dump)

    def _compare(self, folder: TableFolder, reached: LogPosition, dump: Dump) -> Batch:
        before = _taken(folder, reached.name, reached.signature)
        with readable(folder.site, dump):
            rows = folder.changes(before, dump, reached.columns)
            written = max(path.stat().st_mtime for path in dump.files)
        for each in (before, dump):
            if each is not None:
                check_unchanged(folder.site, each)
        transaction = CapturedTransaction(dump.source_txid, written, {folder.site: rows}, dump.name)
        moved = replace(reached, name=dump.name, signature=dump.signature)
        return Batch((transaction,), str(moved))

    def acknowledge(self, site: str, upto: str) -> None:  # noqa: ARG002
        """The dumps are not ours to delete; copies of them are."""
        self._folder(site).place.tidy()

    def can_compare(self, key_type: str, column_type: str) -> bool:
        """Where Spark would convert one side first, only Spark can decide."""
        return comparable(key_type, column_type)

    def can_push(self, comparison: Comparison, column_type: str) -> bool:  # noqa: ARG002
        """Keys alone decide which files and row groups are read."""
        return False

    def lookup(self, plan: Sequence[Lookup]) -> ReadResult:
        """The matches in the newest dump."""
        table = plan[0].table
        folder = self._folder(table.site)
        dump = _newest(folder)
        with _unchanged(folder, dump):
            rows = look_up_all(plan, folder.state(dump, _columns(table)))
        return ReadResult(rows, _read_point(dump))

    def read(self, tables: Mapping[Table, Sequence[str]], scratch: Path) -> ReadResult:  # noqa: ARG002
        """The newest dump as it lies there; nothing goes to `scratch`."""
        ((table, columns),) = tables.items()
        folder = self._folder(table.site)
        dump = _newest(folder)
        with _unchanged(folder, dump):
            rows = folder.state(dump, _columns(table)).everything(columns)
        return ReadResult((rows,), _read_point(dump))

    def seen(self, site: str, read_point: str, source_txids: SourceTxids) -> Seen | None:
        """All transactions up to the dump that was read, once that has been captured."""
        saw, reached = json.loads(read_point), LogPosition.parse(source_txids.log_position)
        if saw["name"] is None and reached.origin is not None:
            raise SourceChanged(
                f"all dumps of {site} are gone: it was read as an empty table, which it never was",
                subject=site,
                hint=f"put them back; {_KEEP}",
            )
        if saw["name"] is None:
            return Seen(0)
        if reached.name is None or natural(saw["name"]) > natural(reached.name):
            return None
        if saw["name"] == reached.name and saw["signature"] != reached.signature:
            raise _rewritten(site, saw["name"])
        if saw["name"] == reached.origin:
            return Seen(0)
        version = source_txids.versions([saw["source_txid"]]).get(saw["source_txid"])
        if version is None:
            raise SourceChanged(
                f"dump {saw['name']} of {site} was read, but it was never captured",
                subject=f"{site}/{saw['name']}",
                hint="a dump's name must come after those of all dumps before it",
            )
        return Seen(version)

    def close(self) -> None:
        with self._lock:
            self._folders = {}

    def _folder(self, site: str) -> TableFolder:
        source, _, table = site.partition(".")
        with self._lock:
            if source == self.name and table not in self._folders:
                self._folders = {**table_folders(self.name, self._path, self._options), **self._folders}
            if source != self.name or table not in self._folders:
                raise SourceMissing(
                    f"source {self.name} has no folder for {site}",
                    subject=site,
                    hint="was it moved or deleted?",
                )
            return self._folders[table]


def _columns(table: Table) -> Columns:
    return tuple(zip(table.columns, table.types, strict=True))


@contextmanager
def _unchanged(folder: TableFolder, dump: Dump | None) -> Iterator[None]:
    """The rows read from a dump count if it is still the same afterwards."""
    if dump is None:
        yield
        return
    with readable(folder.site, dump):
        yield
    check_unchanged(folder.site, dump)


def _newest(folder: TableFolder) -> Dump | None:
    dumps = folder.dumps()
    return dumps[-1] if dumps else None


def _read_point(dump: Dump | None) -> str:
    if dump is None:
        return json.dumps({"name": None})
    return json.dumps({"name": dump.name, "source_txid": dump.source_txid, "signature": dump.signature})


def _taken(folder: TableFolder, name: str | None, signature: str | None) -> Dump | None:
    """A dump that was captured and is needed once more, as it was."""
    if name is None:
        return None
    dump = next((each for each in folder.dumps() if each.name == name), None)
    if dump is None:
        raise LogLost(
            f"dump {name} of {folder.site} is gone or being written again, and it is needed for comparison",
            subject=f"{folder.site}/{name}",
            hint=f"{reload_hint(folder.site)}; {_KEEP}",
        )
    if dump.signature != signature:
        raise _rewritten(folder.site, name)
    return dump


def _rewritten(site: str, name: str) -> SourceChanged:
    return SourceChanged(
        f"dump {name} of {site} is not the one that was captured under this name",
        subject=f"{site}/{name}",
        hint=f"give each dump its own name; {reload_hint(site)}; {_KEEP}",
    )
