"""From a log position on through a Delta table's commits, as far as they concern the same table."""

from __future__ import annotations

from dataclasses import dataclass

from rollview.errors import CaptureRefused, LogLost, SourceChanged, SourceMissing
from rollview.sources.delta.changes import changes_of
from rollview.sources.delta.definition import Definition, check_columns
from rollview.sources.delta.log import read_commit
from rollview.sources.delta.snapshot import FollowedTable, TableSnapshot
from rollview.sources.reload_hint import reload_hint
from rollview.sources.source import (
    Batch,
    CapturedTransaction,
    Table,
)


@dataclass(frozen=True)
class LogPosition:
    """The last version that was looked at, and which table that was; before version 0 nobody knows."""

    version: int
    fingerprint: str

    def __str__(self) -> str:
        return f"{self.version}:{self.fingerprint}"

    @classmethod
    def parse(cls, text: str) -> LogPosition:
        """The log position from its text."""
        version, _, fingerprint = text.partition(":")
        return cls(int(version), fingerprint)


def capture_commits(
    table: FollowedTable, after: LogPosition, limit: int | None = None, upto: int | None = None
) -> Batch:
    """The transactions after a log position: about `limit` changed rows, or all until version `upto`."""
    newest = table.snapshot()
    defined = _definition_at(table, after, newest)
    last = newest.version if upto is None else upto
    version, rows = after.version, 0
    transactions: list[CapturedTransaction] = []
    while version < last and (limit is None or not transactions or rows < limit):
        commit = read_commit(table.folder, table.name, version + 1)
        if commit is None:
            raise _gone(table, version + 1)
        if commit.definition is not None and commit.definition.fingerprint != after.fingerprint:
            if transactions:
                # What was committed before the change is handed over first.
                break
            if defined is not None:
                raise _changed(table, commit.version, defined, commit.definition)
            defined = commit.definition
        if defined is None:
            raise _gone(table, version)
        found = changes_of(commit, defined, table)
        if found is not None:
            changed, count = found
            rows += count
            transactions.append(
                CapturedTransaction(
                    commit.version + 1, commit.time, {table.name: changed}, str(commit.version)
                )
            )
        version = commit.version
    return Batch(tuple(transactions), str(LogPosition(version, defined.fingerprint if defined else "")))


def check_same_table(table: Table, snapshot: TableSnapshot) -> None:
    """Refuses to read a table that has not got the columns that views were planned with."""
    types = snapshot.definition.types
    for name, kind in zip(table.columns, table.types, strict=True):
        if types.get(name) != kind:
            now = f"has type {types[name]} now" if name in types else "is gone"
            raise SourceChanged(
                f"column {name} {kind} of {table.qualified} {now}",
                subject=table.qualified,
                hint=reload_hint(table.qualified),
            )
    check_columns(table.qualified, snapshot.definition.columns)


def _definition_at(table: FollowedTable, after: LogPosition, newest: TableSnapshot) -> Definition | None:
    """The table's definition at a log position, which must be a version of this very table."""
    if after.version <= newest.version:
        if not after.fingerprint:
            return None
        if after.fingerprint == newest.definition.fingerprint:
            return newest.definition
        try:
            defined = table.at(after.version).definition
        except (CaptureRefused, SourceMissing):
            raise _gone(table, after.version) from None
        if defined.fingerprint == after.fingerprint:
            return defined
    raise SourceChanged(
        f"{table.name} is not the table that was captured up to version {after.version}: "
        f"it is at version {newest.version} now",
        subject=table.name,
        hint=f"it was recreated or restored from a copy: {reload_hint(table.name)}",
    )


def _gone(table: FollowedTable, version: int) -> LogLost:
    return LogLost(
        f"the history of {table.name} is gone: the log of version {version} has been cleaned up",
        subject=table.name,
        hint=f"{reload_hint(table.name)}; then capture more often than logs are cleaned up",
    )


def _changed(table: FollowedTable, version: int, before: Definition, now: Definition) -> SourceChanged:
    """What a commit changed in the table's definition."""
    gone = [f"{name} {kind} is gone" for name, kind in before.columns if now.types.get(name) != kind]
    new = [f"{name} {kind} is new" for name, kind in now.columns if before.types.get(name) != kind]
    what = "; ".join([*gone, *new]) or "the table was replaced"
    return SourceChanged(
        f"{table.name} changed its definition at version {version}: {what}",
        subject=table.name,
        hint=reload_hint(table.name),
    )
