"""The main path as a program of its own: python main_path.py FOLDER. Prints one JSON document."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from shop import Shop, shown

from rollview import Project


def main(folder: Path, remote: str) -> None:
    """Sets a project up on a Connect session, changes its sources, rolls it, verifies it."""
    shop = Shop(folder)
    text = (folder / "rollview.yml").read_text().replace("master: 'local[2]'", f"remote: '{remote}'")
    (folder / "rollview.yml").write_text(text)
    for _ in range(12):
        shop.transact()
    shop.begin()
    with Project.open(folder) as project:
        project.setup()
        for _ in range(8):
            shop.transact()
        project.run(once=True)
        last = project.status().last_csn
        right = [
            shown(project, view, csn) == shop.expected(project, view, csn)
            for view in project.views
            for csn in (0, last // 2, last)
        ]
        record = {
            "session": type(project.spark).__module__,
            "last": last,
            "right": all(right),
            "checked": len(right),
            "verified": all(verdict.is_right for verdict in project.verify()),
        }
    shop.close()
    sys.stdout.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
