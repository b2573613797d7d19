"""A consumer that is killed, in a process of its own: captures, keeps batches in a file, forgets them.

Each line of the file is a batch as JSON: where it began, where it ended, the transactions. A line counts when
it is whole. `python postgres_consumer.py DSN FILE`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from postgres_history import bag

from rollview.errors import SourceUnavailable
from rollview.sources.postgres import PostgresSource


def kept(path: Path) -> list[Any]:
    """The batches that were written whole."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def main(dsn: str, path: Path) -> None:
    """Goes on from the last whole line, for ever."""
    source = PostgresSource("s", dsn, {})
    batches = kept(path)
    log_position = batches[-1]["upto"]
    # What was cut off is written again.
    text = "".join(json.dumps(each) + "\n" for each in batches)
    with path.open("r+") as file:
        file.truncate(len(text))
        file.seek(0, os.SEEK_END)
        while True:
            try:
                batch = source.capture("s", log_position, 50)
            except SourceUnavailable:
                continue
            if batch.log_position == log_position:
                continue
            changes = [
                [each.source_txid, [[*row, count] for row, count in bag(each.rows["s.item"]).items()]]
                for each in batch.transactions
            ]
            file.write(
                json.dumps({"after": log_position, "upto": batch.log_position, "changes": changes}) + "\n"
            )
            file.flush()
            os.fsync(file.fileno())
            log_position = batch.log_position
            source.acknowledge("s", log_position)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
