"""The database under test, as the suite uses it: written to as its own users would, and read directly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rollview.sources.source import Source, Table

Row = tuple[Any, ...]
Columns = tuple[tuple[str, str], ...]

SCHEMAS: Mapping[str, Columns] = {
    "orders": (("id", "bigint"), ("cust", "bigint"), ("note", "string")),
    "customer": (("id", "bigint"), ("region", "bigint"), ("name", "string")),
}


@dataclass(frozen=True)
class Write:
    """One changed row, identified by its first column. No `before`: an insertion; no `after`: a deletion."""

    table: str
    before: Row | None
    after: Row | None


class Driver(ABC):
    """A database with some tables, and the source under test beside it."""

    separate_logs: ClassVar[bool] = False
    """Whether each table commits on its own, so that no transaction spans two."""

    gaps: ClassVar[Mapping[str, str]] = {}
    """Unsupported features of this database, each with the reason: `type NAME`, or `captured later`."""

    unheld: ClassVar[Mapping[str, tuple[Sequence[Any], str]]] = {}
    """Single values that the database cannot hold in a column of a type, with the reason."""

    def __init__(
        self,
        folder: Path,
        rows: Mapping[str, Sequence[Row]],
        schemas: Mapping[str, Columns] = SCHEMAS,
    ) -> None:
        self.folder = folder
        self.schemas = schemas
        self.create(rows)
        self.source = self.open()

    @abstractmethod
    def create(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """Makes the tables with their first rows."""

    @abstractmethod
    def open(self) -> Source:
        """A source called `s`, as a new process would open it."""

    @abstractmethod
    def commit(self, writes: Sequence[Write]) -> None:
        """One transaction, as a user of the database makes it."""

    @abstractmethod
    def rows(self, table: str) -> Counter[Row]:
        """The table as it is now, seen without the source."""

    @abstractmethod
    def traces(self) -> Any:
        """Everything that `setup` could leave behind."""

    def tables(self) -> dict[str, Table]:
        return {table.name: table for table in self.source.tables()}

    @contextmanager
    def restarted(self) -> Iterator[Source]:
        """A second source, as another process would open it, beside the first."""
        source = self.open()
        try:
            yield source
        finally:
            source.close()

    def close(self) -> None:
        self.source.close()


class Modelled(Driver):
    """A driver whose database is no more than the rows it keeps: the legacy system, the simulation."""

    def create(self, rows: Mapping[str, Sequence[Row]]) -> None:
        self.model = {name: list(rows.get(name, ())) for name in self.schemas}

    def apply(self, writes: Sequence[Write]) -> None:
        for write in writes:
            if write.before is not None:
                self.model[write.table].remove(write.before)
            if write.after is not None:
                self.model[write.table].append(write.after)

    def rows(self, table: str) -> Counter[Row]:
        return Counter(self.model[table])
