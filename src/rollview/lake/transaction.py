"""One atomic commit: files added and removed together, once, however often the step is tried.

A commit is prepared for one version of the table. If another writer took the next version, everything is
looked at again: whether this very step has been made meanwhile, and whether the files to remove are there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from rollview.errors import ConflictError, LakeError, LakeUnavailable, StoreUnavailable
from rollview.lake.data_files import DataFile
from rollview.lake.disk import hint_for
from rollview.lake.log import Commit, DeltaLog, commit_in, properties_of
from rollview.rows import arrow_schema

_ATTEMPTS = 100
_PAUSE_SECONDS = 0.005


def transact(
    log: DeltaLog,
    added: Sequence[DataFile],
    removed: Sequence[str],
    commit: Commit,
    data_change: bool,
    columns: Sequence[tuple[str, str]] | None = None,
) -> int | None:
    """Adds and removes files in one commit; the new version, or None if this step was made before.

    With `columns`, the table has these from then on, and all files that it had are removed. Added files that
    certainly no commit has are deleted again; after an interrupt they are left to vacuum.
    """
    names = [file.path.name for file in added]
    try:
        version = _transact(log, added, removed, commit, data_change, columns)
    except LakeError as error:
        if not isinstance(error, StoreUnavailable):
            log.place.delete(names)
        raise
    if version is None:
        log.place.delete(names)
    return version


def _transact(
    log: DeltaLog,
    added: Sequence[DataFile],
    removed: Sequence[str],
    commit: Commit,
    data_change: bool,
    columns: Sequence[tuple[str, str]] | None,
) -> int | None:
    for attempt in range(_ATTEMPTS):
        # Nothing between here and the commit may look at the disk again: all is decided on one version.
        with log.lock:
            if log.last_step(commit.writer) >= commit.step:
                return None
            table = log.seen()
            version = table.version() + 1
            actions = _removals(log, table, removed, data_change)
            try:
                _commit(table, [*actions, *_additions(added, data_change)], commit, columns)
                log.place.commit_entry(version)
            except (DeltaError, OSError, StoreUnavailable) as error:
                log.forget()
                # A checkpoint that failed after the commit is no failure of the commit.
                entry = log.actions(version)
                if _is_made(entry, added, commit):
                    return version
                if not entry and isinstance(error, StoreUnavailable):
                    raise
                if not entry:
                    raise LakeUnavailable(
                        f"{log.name}: the commit failed: {error}",
                        subject=log.name,
                        hint=hint_for(error),
                    ) from error
            else:
                return version
        time.sleep(_PAUSE_SECONDS * (attempt + 1))
    raise ConflictError(
        f"{log.name}: lost every commit race",
        subject=log.name,
        hint="stop the other processes that write to this table",
    )


def sync_commit(log: DeltaLog, version: int) -> None:
    """Waits until a commit is on disk."""
    try:
        log.place.sync_entry(version)
    except OSError as error:
        raise LakeUnavailable(
            f"{log.name}: version {version} was committed, but may not be on disk: {error}",
            subject=log.name,
            hint="check the disk, then run the same command again: the step is not applied twice",
        ) from error


def _commit(
    table: DeltaTable,
    actions: list[AddAction | RemoveAction],
    commit: Commit,
    columns: Sequence[tuple[str, str]] | None,
) -> None:
    schema = table.schema() if columns is None else Schema.from_arrow(arrow_schema(columns))
    mode: Literal["append", "overwrite"] = "append" if columns is None else "overwrite"
    table.create_write_transaction(actions, mode=mode, schema=schema, commit_properties=properties_of(commit))


def _additions(added: Sequence[DataFile], data_change: bool) -> list[AddAction]:
    now = int(time.time() * 1000)
    return [AddAction(file.path.name, file.size, {}, now, data_change, file.statistics) for file in added]


def _removals(
    log: DeltaLog, table: DeltaTable, removed: Sequence[str], data_change: bool
) -> list[RemoveAction]:
    now = int(time.time() * 1000)
    present = log.files_of(table) if removed else {}
    for path in removed:
        if path not in present:
            raise ConflictError(
                f"{log.name}: {path} was to be replaced, but is no longer part of the table",
                subject=log.name,
                hint="another process changed the table meanwhile: read it again and repeat the step",
            )
    return [RemoveAction(path, data_change, now, present[path].size) for path in removed]


def _is_made(entry: Sequence[Mapping[str, Any]], added: Sequence[DataFile], commit: Commit) -> bool:
    """Whether the entry of this version is this very commit, with these very files."""
    paths = {action["add"]["path"] for action in entry if "add" in action}
    return paths == {file.path.name for file in added} and commit_in(entry) == commit
