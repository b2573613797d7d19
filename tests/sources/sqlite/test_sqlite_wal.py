"""The WAL reader on files made by hand: what a live SQLite shows only by rare chance."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rollview.sources.sqlite.wal import WalReader, counter_in_page, read_index_header

PAGE_BYTES = 512
ROOT, OTHER = 7, 3
GENERATION = 1_700_000_000_000_000
SALTS, NEW_SALTS = b"saltsalt", b"tlastlas"


def counter_page(value: int, generation: int = GENERATION) -> bytes:
    """A leaf page with the row (0, generation, value), as SQLite lays it out: cells at the end."""
    record = bytes([4, 0, 6, 6]) + struct.pack(">qq", generation, value)
    cell = bytes([len(record), 0]) + record
    start = PAGE_BYTES - len(cell)
    header = struct.pack(">BHHHBH", 13, 0, 1, start, 0, start)
    return header.ljust(start, b"\0") + cell


@dataclass(frozen=True)
class Frame:
    """A frame; `commits` marks the end of a transaction."""

    page: int
    image: bytes
    commits: bool = False
    salts: bytes = SALTS


def write_wal(database: Path, frames: list[Frame], committed: int, salts: bytes = SALTS) -> None:
    """The two files; frames after the first `committed` ones are not in the index yet."""
    wal = struct.pack(">IIII", 0x377F0682, 3007000, PAGE_BYTES, 0) + salts + bytes(8)
    for frame in frames:
        wal += (
            struct.pack(">II", frame.page, 9 if frame.commits else 0) + frame.salts + bytes(8) + frame.image
        )
    Path(f"{database}-wal").write_bytes(wal)
    write_index(database, committed, salts)


def write_index(database: Path, committed: int, salts: bytes, initialized: int = 1) -> None:
    """The WAL index: its header twice, with a checksum of its first 40 bytes."""
    head = struct.pack("=IIIBBHII8x", 3007000, 0, 1, initialized, 0, PAGE_BYTES, committed, 9) + salts
    first = second = 0
    for one, other in struct.iter_unpack("=II", head):
        first = (first + one + second) % 2**32
        second = (second + other + first) % 2**32
    header = head + struct.pack("=II", first, second)
    index = Path(f"{database}-shm")
    index.touch()
    with index.open("r+b") as file:
        file.write(header * 2)


def test_the_last_image_before_each_commit_counts(tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    frames = [
        Frame(ROOT, counter_page(GENERATION + 1)),
        Frame(OTHER, counter_page(GENERATION + 99)),
        Frame(ROOT, counter_page(GENERATION + 2)),
        Frame(OTHER, bytes(PAGE_BYTES), commits=True),
        Frame(OTHER, bytes(PAGE_BYTES), commits=True),
        Frame(ROOT, counter_page(GENERATION + 5), commits=True),
    ]
    write_wal(database, frames, 6)
    reader = WalReader(database)
    assert reader.commits(ROOT, GENERATION) == [GENERATION + 2, GENERATION + 5]
    assert reader.commits(ROOT, GENERATION) == []


def test_frames_that_the_index_does_not_know_are_not_there(tmp_path: Path) -> None:
    """A writer died after its commit frame; the next one writes over it."""
    database = tmp_path / "a.db"
    first = Frame(ROOT, counter_page(GENERATION + 1), commits=True)
    dead = [Frame(ROOT, counter_page(GENERATION + 4), commits=True), Frame(OTHER, bytes(PAGE_BYTES))]
    write_wal(database, [first, *dead], 1)
    reader = WalReader(database)
    assert reader.commits(ROOT, GENERATION) == [GENERATION + 1]
    alive = [Frame(OTHER, bytes(PAGE_BYTES)), Frame(ROOT, counter_page(GENERATION + 2), commits=True)]
    write_wal(database, [first, *alive], 3)
    assert reader.commits(ROOT, GENERATION) == [GENERATION + 2]


def test_a_wal_that_was_started_over_is_read_from_its_beginning(tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    old = [Frame(ROOT, counter_page(GENERATION + i), commits=True) for i in (1, 2, 3)]
    write_wal(database, old, 3)
    reader = WalReader(database)
    assert len(reader.commits(ROOT, GENERATION)) == 3
    new = Frame(ROOT, counter_page(GENERATION + 4), commits=True, salts=NEW_SALTS)
    write_wal(database, [new, *old[1:]], 1, NEW_SALTS)
    assert reader.commits(ROOT, GENERATION) == [GENERATION + 4]


def test_what_was_read_while_the_wal_was_started_over_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index changes before the first frame does, so the frames may still look right."""
    database = tmp_path / "a.db"
    write_wal(database, [Frame(ROOT, counter_page(GENERATION + 1), commits=True)], 1)
    scan = WalReader._scan

    def scan_and_start_over(self: WalReader, *arguments: Any) -> list[int] | None:
        monkeypatch.setattr(WalReader, "_scan", scan)
        found = scan(self, *arguments)
        new = Frame(ROOT, counter_page(GENERATION + 2), commits=True, salts=NEW_SALTS)
        write_wal(database, [new], 1, NEW_SALTS)
        return found

    monkeypatch.setattr(WalReader, "_scan", scan_and_start_over)
    assert WalReader(database).commits(ROOT, GENERATION) == [GENERATION + 2]


def test_old_frames_among_new_ones_are_never_believed(tmp_path: Path) -> None:
    """The index says three frames, but one has the salts of an earlier WAL: it changed while it was read."""
    database = tmp_path / "a.db"
    frames = [Frame(ROOT, counter_page(GENERATION + i), commits=True) for i in (1, 2, 3)]
    frames[1] = Frame(ROOT, counter_page(GENERATION + 9), commits=True, salts=NEW_SALTS)
    write_wal(database, frames, 3)
    assert WalReader(database).commits(ROOT, GENERATION) == []


def test_a_page_of_something_else_is_no_counter(tmp_path: Path) -> None:
    assert counter_in_page(counter_page(GENERATION + 1), GENERATION) == GENERATION + 1
    assert counter_in_page(counter_page(GENERATION + 1, GENERATION - 1), GENERATION) is None
    assert counter_in_page(bytes(PAGE_BYTES), GENERATION) is None
    assert counter_in_page(b"\x05" + counter_page(GENERATION)[1:], GENERATION) is None
    assert counter_in_page(b"\xff" * PAGE_BYTES, GENERATION) is None


@pytest.mark.parametrize("damage", ["missing", "short", "copies differ", "checksum", "not initialized"])
def test_an_index_that_is_not_whole_is_not_used(tmp_path: Path, damage: str) -> None:
    database = tmp_path / "a.db"
    write_wal(database, [Frame(ROOT, counter_page(GENERATION + 1), commits=True)], 1)
    index = Path(f"{database}-shm")
    whole = index.read_bytes()
    assert read_index_header(database) is not None
    if damage == "not initialized":
        write_index(database, 1, SALTS, initialized=0)
    elif damage == "missing":
        index.unlink()
    else:
        torn = {
            "short": whole[:50],
            "copies differ": whole[:16] + b"\x05" + whole[17:],
            "checksum": (whole[:16] + b"\x05" + whole[17:48]) * 2,
        }
        index.write_bytes(torn[damage])
    assert read_index_header(database) is None
    assert WalReader(database).commits(ROOT, GENERATION) == []
