"""The metadata of a table that people read: its description, its properties, and the comments of its columns.

deltalake can add to them, but not take away, and makes one commit for each. So this entry of the log is
written here: one commit with the whole metadata, and nothing else in it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from deltalake import DeltaTable

from rollview.lake.log import Commit, information_of

OPERATION = "describe"
"""Of a commit that changes neither rows nor columns."""

_COMMENT = "comment"


def described(
    table: DeltaTable, comment: str, properties: Mapping[str, str], columns: Mapping[str, str]
) -> dict[str, Any] | None:
    """The table's metadata with this description, as an action of the log; None if it is what it has."""
    known = table.metadata()
    schema = json.loads(table.schema().to_json())
    before = json.dumps(schema)
    for each in schema["fields"]:
        others = {key: value for key, value in each["metadata"].items() if key != _COMMENT}
        each["metadata"] = others | ({_COMMENT: columns[each["name"]]} if each["name"] in columns else {})
    text = json.dumps(schema)
    same = text == before and (known.description or "") == comment
    if same and known.configuration == dict(properties):
        return None
    return {
        "id": str(known.id),
        "name": known.name,
        "description": comment or None,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": text,
        "partitionColumns": known.partition_columns,
        "createdTime": known.created_time,
        "configuration": dict(properties),
    }


def write_entry(path: Path, metadata: Mapping[str, Any], commit: Commit) -> None:
    """Writes the entry, all of it at once; FileExistsError if another writer was faster."""
    now = int(time.time() * 1000)
    information = {
        "timestamp": now,
        "operation": "SET TBLPROPERTIES",
        "operationParameters": {"properties": json.dumps(metadata["configuration"])},
        **information_of(commit),
    }
    actions = [
        {"commitInfo": information},
        {"metaData": metadata},
        {"txn": {"appId": commit.writer, "version": commit.step, "lastUpdated": now}},
    ]
    unfinished = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            file.write("\n".join(json.dumps(action) for action in actions))
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(unfinished)
    finally:
        with suppress(FileNotFoundError):
            unfinished.unlink()
