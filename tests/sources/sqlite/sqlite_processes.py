"""For the tests of the SQLite source: writer processes, and what they must have left behind."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import sqlite_writer
from sqlite_history import bag, contents

from rollview.sources.source import CapturedTransaction

TABLES = ["item", "mark"]


def start(path: Path, name: str, seconds: float, *more: str) -> subprocess.Popen[str]:
    """A writer process."""
    command = [sys.executable, sqlite_writer.__file__, str(path), name, str(seconds), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@contextmanager
def writers(path: Path, count: int, seconds: float, *more: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Writer processes; they are over at the end."""
    processes = [start(path, f"w{i}", seconds, *more) for i in range(count)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def running(processes: list[subprocess.Popen[str]]) -> bool:
    """Whether any of them still is at work."""
    return any(process.poll() is None for process in processes)


def ids(transaction: CapturedTransaction) -> set[str]:
    """The ids that a transaction wrote."""
    return {row[1] if "item" in name else row[0] for name, row, count in _rows(transaction) if count > 0}


def _rows(transaction: CapturedTransaction) -> Iterator[tuple[str, tuple[object, ...], int]]:
    for name, rows in transaction.rows.items():
        for row, count in bag(rows).items():
            yield name, row, count


def check_against(connection: sqlite3.Connection, captured: list[CapturedTransaction]) -> None:
    """Each transaction wrote one id, in order per writer, and together they make the tables."""
    written = [ids(transaction) for transaction in captured]
    assert all(len(each) == 1 for each in written)
    order = [next(iter(each)).split("-") for each in written]
    for name, numbers in groupby(sorted(order, key=lambda each: (each[0],)), key=lambda each: each[0]):
        assert [int(n) for _, n in numbers] == sorted({int(n) for each, n in order if each == name})
    total: dict[str, Counter[tuple[object, ...]]] = {name: Counter() for name in TABLES}
    for transaction in captured:
        for name, row, count in _rows(transaction):
            total[name.removeprefix("s.")][row] += count
            assert total[name.removeprefix("s.")][row] >= 0
    assert {name: +rows for name, rows in total.items()} == contents(connection, TABLES)
