"""Damage to what is stored, at random, between random transactions; and the way back that errors print.

After every damage a project is either right, by DuckDB over the databases, or refuses with a hint whose
commands, typed as printed, lead back to right.
"""

from __future__ import annotations

import random
import re
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from crashing import Died, Executioner
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from shop import Shop, shown

from rollview.cli.main import main
from rollview.errors import RollviewError
from rollview.project.project import Project

VIEWS = {
    "sales_by_state": """SELECT c.state, count(*) AS n, sum(s.amount) AS total FROM shop.sales s
        JOIN crm.customer c ON s.cust_id = c.cust_id GROUP BY c.state""",
    "sold": """SELECT s.sale_id, c.state, s.amount FROM shop.sales s
        JOIN crm.customer c ON s.cust_id = c.cust_id""",
    "states_of_size": "SELECT n, count(*) AS states FROM sales_by_state GROUP BY n",
    "products": "SELECT kind, count(*) AS n FROM shop.product GROUP BY kind",
}
COMMAND = re.compile(r"`(rollview [^`]*)`")
MOST_HINTS = 4
YEAR_SECONDS = 365 * 86_400.0


class Damaged:
    """A shop, its project, and somebody who breaks things."""

    def __init__(
        self, folder: Path, spark: SparkSession, seed: int, monkeypatch: pytest.MonkeyPatch | None = None
    ) -> None:
        self.shop = Shop(folder / "shop", VIEWS)
        self.spark, self.chance = spark, random.Random(seed)
        self.shop.random = random.Random(seed)
        self.copies = folder / "copies"
        self.copies.mkdir()
        self.lake = self.shop.folder / "lake"
        self.executioner = None if monkeypatch is None else Executioner(monkeypatch)
        self.hints: Counter[str] = Counter()
        self.deeds: Counter[str] = Counter()
        self.write(12)
        with self.open() as project:
            project.setup()

    def open(self) -> Project:
        return Project.open(self.shop.folder, self.spark)

    def write(self, number: int = 3) -> None:
        for _ in range(number):
            self.shop.transact()

    def keep_copy(self) -> None:
        """What a later damage may put back."""
        target = self.copies / f"{len(list(self.copies.iterdir()))}"
        shutil.copytree(self.lake, target, ignore=shutil.ignore_patterns("set-aside", "scratch", "*-shm"))

    def round(self) -> str:
        """Some work, one damage, some work, and the way back; what the damage was."""
        self.write(self.chance.randint(0, 4))
        if self.chance.random() < 0.5:
            with suppress(RollviewError), self.open() as project:
                project.run(once=True)
        if self.chance.random() < 0.4 or not any(self.copies.iterdir()):
            self.keep_copy()
        deeds = [name for name in dir(self) if name.startswith("deed_")]
        if self.executioner is None:
            deeds.remove("deed_kill")
        name = self.chance.choice(deeds)
        what = f"{name.removeprefix('deed_')} {getattr(self, name)() or ''}".strip()
        self.deeds[name.removeprefix("deed_")] += 1
        self.write(self.chance.randint(0, 3))
        self.lead_back(what)
        return what

    def lead_back(self, what: str) -> None:
        """Right, or refused with a hint that leads to right."""
        errors: list[str] = []
        for _ in range(MOST_HINTS + 1):
            error = self._attempt()
            if error is None:
                return
            errors.append(f"{type(error).__name__}: {error}")
            commands = COMMAND.findall(error.hint)
            assert commands, f"{what}: no command in the hint: {errors}"
            self.hints[f"{type(error).__name__}: {commands[0]}"] += 1
            self.type(commands[0])
        raise AssertionError(f"{what}: hints lead nowhere: {errors}")

    def _attempt(self) -> RollviewError | None:
        try:
            with self.open() as project:
                project.run(once=True)
                assert set(project.views) == set(self.shop.views)
                for view in project.views:
                    rows = DeltaTable(str(self.lake / "views" / view)).to_pyarrow_table()
                    expected = self.shop.expected_now(view)
                    assert shown(project, view) == expected, view
                    assert Counter(map(tuple, (row.values() for row in rows.to_pylist()))) == expected, view
        except RollviewError as error:
            return error
        return None

    def type(self, command: str) -> str:
        """Types a command as it was printed; what it printed."""
        arguments = shlex.split(command)[1:]
        place = ["--project", str(self.shop.folder)]
        done = CliRunner().invoke(main, [*arguments, *place], obj=self.spark)
        assert not isinstance(done.exception, Exception) or done.exit_code in (0, 1, 2), command
        assert done.exit_code != 2 or "rollview" in done.output, (command, done.output)
        return done.output

    # Deeds

    def deed_nothing(self) -> None:
        """Steady work continues."""

    def deed_kill(self) -> str:
        """A process dies at some durable operation of something."""
        assert self.executioner is not None
        actions: list[Callable[[Project], object]] = [
            lambda project: project.run(once=True),
            lambda project: project.setup(["sold"]),
            lambda project: project.setup(["shop"]),
            lambda project: project.setup([]),
            lambda project: project.maintain(),
        ]
        action, moment = self.chance.choice(actions), self.chance.randint(0, 60)
        self.executioner.kill_at(moment)
        project = self.open()
        try:
            action(project)
        except (Died, RollviewError) as end:
            return str(end).splitlines()[0]
        finally:
            with suppress(Died):
                project.close()
            place = self.executioner.place
            self.executioner.revive()
        return place

    def deed_older_catalog(self) -> None:
        self._put_back("catalog.db*")

    def deed_older_lake(self) -> None:
        self._put_back("[!c]*", "changes")

    def deed_older_both(self) -> None:
        self._put_back("*")

    def _put_back(self, *patterns: str) -> None:
        copy = self.chance.choice(sorted(self.copies.iterdir()))
        for pattern in patterns:
            for path in self.lake.glob(pattern):
                if path.name not in ("set-aside", "scratch"):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            for path in copy.glob(pattern):
                target = self.lake / path.name
                shutil.copytree(path, target) if path.is_dir() else shutil.copy2(path, target)

    def deed_no_catalog(self) -> None:
        for path in self.lake.glob("catalog.db*"):
            path.unlink()

    def deed_second_catalog(self) -> str:
        """A copy of the catalog is used, beside the same lake."""
        copy = self.copies.parent / "second.db"
        source = Project.open(self.shop.folder, self.spark)
        try:
            with suppress(RollviewError):
                source.capture()
                for path in self.lake.glob("catalog.db*"):
                    shutil.copy2(path, copy.with_name(path.name.replace("catalog.db", "second.db")))
                self.write(2)
                self.shop.write_project(catalog=f"sqlite:///{copy}")
                with Project.open(self.shop.folder, self.spark) as second:
                    second.run(once=True)
        except RollviewError as error:
            return str(error)
        finally:
            source.close()
            self.shop.write_project()
            for path in copy.parent.glob("second.db*"):
                path.unlink()
        return ""

    def deed_lost_file(self) -> str:
        path = self._some_file()
        path.unlink()
        return str(path.relative_to(self.lake))

    def deed_truncated_file(self) -> str:
        path = self._some_file()
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 2)
        return str(path.relative_to(self.lake))

    def deed_lost_log_entry(self) -> str:
        """The newest entry of some table's log."""
        path = self.chance.choice(self._newest_entries())
        path.unlink()
        return str(path.relative_to(self.lake))

    def deed_foreign_rows(self) -> str:
        """Somebody appends to a table of the lake."""
        tables = [path for path in self.lake.glob("*/*") if (path / "_delta_log").is_dir()]
        folder = self.chance.choice(sorted(tables))
        table = DeltaTable(str(folder))
        rows = table.to_pyarrow_table()
        if rows.num_rows:
            write_deltalake(table, pa.Table.from_batches(rows.slice(0, 1).to_batches()), mode="append")
        return folder.name

    def deed_foreign_files(self) -> str:
        """Things that nobody expects lie about."""
        kind = self.chance.choice(["views", "deltas", "state"])
        folder = self.lake / kind
        folder.mkdir(exist_ok=True)
        (folder / "notes.txt").write_text("not a table\n")
        (folder / "empty").mkdir(exist_ok=True)
        return kind

    def deed_optimize(self) -> None:
        for folder in sorted((self.lake / "views").iterdir()):
            if (folder / "_delta_log").is_dir():
                table = DeltaTable(str(folder))
                table.optimize.compact()
                table.vacuum(0, dry_run=False, enforce_retention_duration=False)

    def deed_clock(self) -> str:
        """One run with a clock that is far off."""
        by = self.chance.choice([-YEAR_SECONDS, YEAR_SECONDS])
        with suppress(RollviewError), self.open() as project:
            catalog = project._warehouse.catalog
            catalog._clock = lambda: time.time() + by
            try:
                project.run(once=True)
            finally:
                catalog._clock = time.time
        return f"{by:+.0f} s"

    def deed_full_disk(self) -> str:
        """A write fails somewhere."""
        place = "rollview.lake.disk.sync"
        left = self.chance.randint(0, 12)

        def full(path: Any) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(28, "No space left on device")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(place, full)
            with suppress(RollviewError, OSError), self.open() as project:
                project.run(once=True)
        return place

    def _some_file(self) -> Path:
        inside = [
            path for name in ("changes", "deltas", "state", "views") for path in (self.lake / name).rglob("*")
        ]
        files = [path for path in inside if path.is_file() and path.suffix in (".parquet", ".json")]
        return self.chance.choice(sorted([*files, self.lake / "lake.json"]))

    def _newest_entries(self) -> list[Path]:
        logs = [path for path in self.lake.rglob("_delta_log") if "set-aside" not in path.parts]
        entries = [list(log.glob("[0-9]*.json")) for log in logs]
        # A table that a reload has replaced may have lost all of them before.
        return sorted(max(each) for each in entries if each)
