"""From a log position on through a Delta table's commits, as far as they concern the same table."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from rollview.errors import LogLost, SourceChanged
from rollview.sources.delta.changes import changes_of
from rollview.sources.delta.definition import Definition
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
    """The last version that was looked at, what its commit was, and the columns that are captured.

    Its text is `VERSION:` and JSON; before version 0 there is no more to say.
    """

    version: int
    stamp: str = ""
    defined: Definition | None = None

    def __str__(self) -> str:
        fields = "" if self.defined is None else json.dumps({"stamp": self.stamp} | asdict(self.defined))
        return f"{self.version}:{fields}"

    @classmethod
    def parse(cls, text: str) -> LogPosition:
        """The log position from its text."""
        version, _, said = text.partition(":")
        if not said:
            return cls(int(version))
        fields = json.loads(said)
        columns = tuple((name, kind) for name, kind in fields["columns"])
        defined = Definition(fields["identity"], columns, tuple(fields["partitions"]))
        return cls(int(version), fields["stamp"], defined)


def capture_commits(
    table: FollowedTable, after: LogPosition, limit: int | None = None, upto: int | None = None
) -> Batch:
    """The transactions after a log position: about `limit` changed rows, or all until version `upto`."""
    newest = table.snapshot()
    check_history(table, after, newest)
    defined = after.defined
    last = newest.version if upto is None else upto
    version, stamp, rows = after.version, after.stamp, 0
    transactions: list[CapturedTransaction] = []
    while version < last and (limit is None or not transactions or rows < limit):
        commit = read_commit(table.folder, table.name, version + 1)
        if commit is None:
            raise _gone(table, version + 1)
        if commit.definition is not None:
            new = commit.definition.capturable()
            followed = new if defined is None else defined.followed_by(new)
            if followed is None and transactions:
                # What was committed before the change is handed over first.
                break
            if followed is None:
                assert defined is not None
                raise _changed(table, commit.version, defined, commit.definition)
            defined = followed
        if defined is None:
            raise _gone(table, version)
        found = changes_of(commit, defined, table)
        if found is not None:
            changed, count = found
            rows += count
            transactions.append(
                CapturedTransaction(
                    commit.version + 1,
                    commit.time,
                    {table.name: changed},
                    str(commit.version),
                    place=commit.version + 1,
                )
            )
        version, stamp = commit.version, commit.stamp
    return Batch(tuple(transactions), str(LogPosition(version, stamp, defined)))


def check_history(table: FollowedTable, reached: LogPosition, newest: TableSnapshot) -> None:
    """Refuses a table that did not come by the place that a log position names.

    Where the commit has been cleaned up, its table can only be told by its identity.
    """
    if reached.version <= newest.version:
        stamp = table.stamp(reached.version)
        is_same = reached.defined is None or reached.defined.identity == newest.definition.identity
        if (stamp == reached.stamp and stamp) or (is_same and not (stamp and reached.stamp)):
            return
    raise SourceChanged(
        f"{table.name} is not the table that was captured up to version {reached.version}: "
        f"it is at version {newest.version} now",
        subject=table.name,
        hint=f"it was recreated or restored from a copy: {reload_hint(table.name)}",
    )


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


def _gone(table: FollowedTable, version: int) -> LogLost:
    return LogLost(
        f"the history of {table.name} is gone: the log of version {version} has been cleaned up",
        subject=table.name,
        hint=f"{reload_hint(table.name)}; then capture more often than logs are cleaned up",
    )


def _changed(table: FollowedTable, version: int, before: Definition, now: Definition) -> SourceChanged:
    """What a commit changed in the table's definition."""
    changed = [
        f"column {name} {kind} {f'has type {now.types[name]} now' if name in now.types else 'is gone'}"
        for name, kind in before.columns
        if now.types.get(name) != kind
    ]
    what = "; ".join(changed) or "the table was replaced"
    return SourceChanged(
        f"{table.name} changed its definition at version {version}: {what}",
        subject=table.name,
        hint=reload_hint(table.name),
    )
