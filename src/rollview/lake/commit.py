"""What a commit says of itself: who made it, which step it was, and how far the content has come.

It lies in the Delta commit beside the files, so content and position can never disagree. Writer and step are
also Delta's application transaction, which outlives the cleaning of old log entries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from deltalake import CommitProperties, Transaction

_KEY = "rollview"


@dataclass(frozen=True)
class Commit:
    """A step of one writer. A repeat of the same writer and step changes nothing.

    The content comes to `csn`, from `continues` where it goes on from an earlier one; `epoch` is that of the
    lake when it was written.
    """

    writer: str
    step: int
    csn: int
    commit_time: float
    operation: str
    continues: int | None = None
    epoch: str = ""


def properties_of(commit: Commit) -> CommitProperties:
    """How the commit is written down. `userMetadata` is the column of DESCRIBE HISTORY that people see."""
    said = {
        "writer": commit.writer,
        "step": commit.step,
        "csn": commit.csn,
        "commitTime": commit.commit_time,
        "operation": commit.operation,
        "continues": commit.continues,
        "epoch": commit.epoch,
    }
    # The library must not try again by itself: after every failure the step is looked up first.
    return CommitProperties(
        custom_metadata={_KEY: said, "userMetadata": _for_people(commit)},
        max_commit_retries=0,
        app_transactions=[Transaction(commit.writer, commit.step)],
    )


def _for_people(commit: Commit) -> str:
    """Which state of the sources the content shows, and when its last transaction was, if there was one."""
    time = commit.commit_time
    when = datetime.fromtimestamp(time, UTC).isoformat(timespec="microseconds") if time else None
    return json.dumps({"operation": commit.operation, "csn": commit.csn, "commit_time": when})


def commit_of(information: Mapping[str, Any]) -> Commit | None:
    """The commit that a `commitInfo` action tells of; None if rollview did not make it."""
    said = information.get(_KEY)
    if said is None:
        return None
    return Commit(
        said["writer"],
        said["step"],
        said["csn"],
        said["commitTime"],
        said["operation"],
        said.get("continues"),
        said.get("epoch", ""),
    )
