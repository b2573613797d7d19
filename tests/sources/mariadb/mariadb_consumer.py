"""A process that captures and keeps what it captured, to be killed at any moment: python FILE DSN LEDGER."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from mariadb_database import counted

from rollview.errors import RollviewError, SourceUnavailable
from rollview.sources.mariadb import MariaDBSource
from rollview.sources.source import CapturedTransaction


def _changes(transaction: CapturedTransaction) -> list[list[Any]]:
    return [
        [name, *row, count]
        for name, rows in transaction.rows.items()
        for row, count in sorted(counted(rows).items())
    ]


def main(dsn: str, ledger: Path) -> None:
    """Appends a line per batch: its log position and its changes. A line without its end is lost."""
    source = MariaDBSource("s", dsn, {"timeout": "5"})
    lines = ledger.read_bytes().split(b"\n")
    log_position = json.loads(lines[-2])["log_position"]
    with ledger.open("r+b") as file:
        # What a killed one left unfinished.
        file.truncate(sum(len(line) + 1 for line in lines[:-1]))
        file.seek(0, os.SEEK_END)
        while True:
            try:
                batch = source.capture("s", log_position, 50)
            except SourceUnavailable:
                time.sleep(0.05)
                continue
            except RollviewError as error:
                file.write(json.dumps({"log_position": log_position, "error": str(error)}).encode() + b"\n")
                return
            if batch.log_position == log_position:
                time.sleep(0.005)
                continue
            log_position = batch.log_position
            changes = [[each.source_txid, _changes(each)] for each in batch.transactions]
            file.write(json.dumps({"log_position": log_position, "changes": changes}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
