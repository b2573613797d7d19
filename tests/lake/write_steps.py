"""A process that appends steps to a change log until it is killed: `write_steps.py FOLDER WRITER STEPS ROWS`.

Started again it continues after its last step. Now and then it compacts and replaces, as the drivers do.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lake_rows import CHANGES, changes, commit

from rollview.lake import LakeTable


def main(folder: str, writer: str, steps: str, rows: str) -> None:
    """Goes from the first step that is missing to the last."""
    table = LakeTable(Path(folder))
    table.create(CHANGES, {"delta.checkpointInterval": "5"})
    for step in range(table.last_step(writer) + 1, int(steps) + 1):
        # Repeated on purpose: the second try must change nothing.
        for _ in range(2):
            table.append(changes(step, int(rows), seed=len(writer)), commit(step, writer))
        if step % 4 == 0:
            table.compact(commit(step, f"compact:{writer}"), target_rows=4 * int(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
