"""Notices a table that another program has changed, before a view is computed from it.

A commit that changes no rows (a vacuum, an optimize) is let pass. Entries that the log has forgotten cannot
be checked; drivers look at every version soon after it was made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rollview.errors import LakeDamaged
from rollview.lake.log import DeltaLog


def check_no_external_writes(log: DeltaLog, since: int) -> None:
    """Refuses a table that somebody else changed after this version, or that has lost data files."""
    name = log.folder.name
    for version in range(since + 1, log.version() + 1):
        actions = log.actions(version)
        if actions and log.commit_at(version) is None and _changes(actions):
            raise LakeDamaged(
                f"{name} was changed by another program: version {version}, {_operation(actions)}",
                subject=name,
                hint=log.way_out,
            )
    there = {path.name for path in log.folder.glob("*.parquet")}
    missing = [path for path in log.files() if path not in there and not (log.folder / path).exists()]
    if missing:
        raise LakeDamaged(
            f"{name} is missing {len(missing)} of its data files, for example {missing[0]}",
            subject=name,
            hint=log.way_out,
        )


def changes_rows(log: DeltaLog, version: int) -> bool:
    """Whether a version has other rows than the one before; of a forgotten entry nobody knows."""
    actions = log.actions(version)
    return not actions or _changes(actions)


def _changes(actions: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a log entry changes rows, columns or the way they are to be read."""
    for action in actions:
        if "metaData" in action or "protocol" in action:
            return True
        if any(action.get(kind, {}).get("dataChange") for kind in ("add", "remove")):
            return True
    return False


def _operation(actions: Sequence[Mapping[str, Any]]) -> str:
    for action in actions:
        if "commitInfo" in action:
            return str(action["commitInfo"].get("operation", "an unnamed operation"))
    return "an unnamed operation"
