"""Delta tables written by delta-rs: with and without change data feed, and partitioned."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from obstore.store import LocalStore

from rollview.rows import arrow_schema
from rollview.sources.bucket import Bucket
from rollview.sources.delta import DeltaSource
from rollview.sources.registry import open_source
from rollview.sources.source import Source
from rollview.testing import SCHEMAS, Columns, Driver, Row, Write
from servers.s3 import shared_server


class DeltaDriver(Driver):
    """Each transaction is one MERGE, so that insertions, updates and deletions share a version."""

    separate_logs = True
    configuration: Mapping[str, str] = {}
    partition: int | None = None
    storage_options: Mapping[str, str] | None = None

    def create(self, rows: Mapping[str, Sequence[Row]]) -> None:
        for name, columns in self.schemas.items():
            by = None if self.partition is None else [columns[self.partition][0]]
            write_deltalake(
                self.uri(name),
                self._arrow(name, rows.get(name, ())),
                partition_by=by,
                configuration=dict(self.configuration),
                storage_options=self.storage_options,
            )

    def uri(self, table: str) -> str:
        """Where a table is."""
        return str(self.folder / table)

    def open(self) -> Source:
        return DeltaSource("s", self.folder)

    def commit(self, writes: Sequence[Write]) -> None:
        (name,) = {write.table for write in writes}
        given = [
            (*(write.after or write.before or ()), write.before is not None, write.after is None)
            for write in writes
        ]
        columns = [*(name for name, _ in self.schemas[name]), "_known", "_gone"]
        schema = pa.schema([*arrow_schema(self.schemas[name]), ("_known", pa.bool_()), ("_gone", pa.bool_())])
        changes = pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in given], schema)
        values = {column: f"c.{column}" for column, _ in self.schemas[name]}
        key = columns[0]
        merge = self._table(name).merge(changes, f"t.{key} = c.{key}", source_alias="c", target_alias="t")
        merge.when_matched_delete("c._gone").when_matched_update(values).when_not_matched_insert(
            values, "NOT c._gone"
        ).execute()

    def rows(self, table: str) -> Counter[Row]:
        columns = [name for name, _ in self.schemas[table]]
        found = self._table(table).to_pyarrow_table(columns=columns)
        return Counter(tuple(row[name] for name in columns) for row in found.to_pylist())

    def traces(self) -> Any:
        return sorted(Path(self.folder).rglob("*"))

    def _table(self, name: str) -> DeltaTable:
        return DeltaTable(self.uri(name), storage_options=self.storage_options)

    def _arrow(self, name: str, rows: Sequence[Row]) -> pa.Table:
        schema = arrow_schema(self.schemas[name])
        return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


class DeltaFeedDriver(DeltaDriver):
    """Commits have their changes in a change data feed."""

    configuration = {"delta.enableChangeDataFeed": "true"}  # noqa: RUF012


class DeltaInBucketDriver(DeltaDriver):
    """The folder as `obstore` shows it: listings, and whole objects."""

    def open(self) -> Source:
        copies = Path(tempfile.mkdtemp(prefix="copies-"))
        source = DeltaSource("s", Bucket(LocalStore(self.folder), "s3://suite", copies))
        weakref.finalize(source, shutil.rmtree, copies)
        return source


class DeltaOnS3Driver(DeltaDriver):
    """Tables in a bucket of a real server, written there by another program."""

    def __init__(
        self,
        folder: Path,
        rows: Mapping[str, Sequence[Row]],
        schemas: Mapping[str, Columns] = SCHEMAS,
    ) -> None:
        self._server = shared_server()
        self._server.bucket("suite")
        self._url = f"s3://suite/{folder.name}"
        self.storage_options = self._server.storage_options
        super().__init__(folder, rows, schemas)

    def uri(self, table: str) -> str:
        return f"{self._url}/{table}"

    def open(self) -> Source:
        return open_source("s", "delta", {"path": self._url, **self._server.settings}, self.folder)

    def traces(self) -> Any:
        return sorted((self._server.folder / "suite" / self.folder.name).rglob("*"))


class DeltaPartitionedDriver(DeltaDriver):
    """The second column is not in the files, but in the log."""

    partition = 1
    gaps = {"type binary": "delta-rs does not partition by binary values"}  # noqa: RUF012
    unheld = {  # noqa: RUF012
        "string": ([""], "Delta takes an empty partition value for NULL"),
        "decimal(15,2)": (
            [Decimal("-9999999999999.99")],
            "delta-rs writes a negative decimal partition value that it cannot read",
        ),
        "double": ([-1e300], "delta-rs makes too long a folder name of it"),
    }
