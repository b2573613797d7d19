"""Where transactions ended, read from the write-ahead log.

Every transaction of a WAL database ends with a commit frame. Among its frames is an image of the page that
holds the counter, if it changed a captured table; the last image before the commit frame has the counter as
it was committed. Frames beyond `mxFrame` of the WAL index (`-shm`) may be unfinished, or left behind by a
writer that died, and are never looked at. https://sqlite.org/fileformat2.html#walformat and walformat.html
describe both files.

A WAL that was started over has new salts, and the index says so before the first old frame is overwritten.
So what was read counts if the index still has the same salts afterwards.
"""

from __future__ import annotations

import os
import struct
import threading
from dataclasses import dataclass
from pathlib import Path

_WAL_HEADER_BYTES = 32
_FRAME_HEADER = struct.Struct(">2I8s8x")
_PAGE_SIZE = struct.Struct(">8xI")
_LEAF_OF_ONE_CELL = b"\x0d\x00\x00\x00\x01"
_CHUNK_BYTES = 4 << 20
_INTEGER_BYTES = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 8: 0, 9: 0}
_ATTEMPTS = 1000


@dataclass(frozen=True)
class IndexHeader:
    """The part of the WAL index's header that matters: the last committed frame, and which WAL it is in."""

    last_frame: int
    salts: bytes


class _IndexFiles:
    """Descriptors of `-shm` files, kept open for as long as the file exists.

    Closing a descriptor would drop all locks that SQLite holds on that file for this process, and another
    process could then take a database in use for an abandoned one. A file that has no name any more was
    given up by every process; only then is its descriptor closed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[tuple[int, int], int] = {}

    def read(self, path: Path, length: int) -> bytes:
        """The first bytes of the file; nothing if there is no file."""
        with self._lock:
            try:
                status = path.stat()
            except FileNotFoundError:
                return b""
            descriptor = self._open.get((status.st_dev, status.st_ino))
            if descriptor is None:
                self._close_unlinked()
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                status = os.fstat(descriptor)
                self._open[status.st_dev, status.st_ino] = descriptor
            return os.pread(descriptor, length, 0)

    def _close_unlinked(self) -> None:
        for identity, descriptor in list(self._open.items()):
            if os.fstat(descriptor).st_nlink == 0:
                os.close(descriptor)
                del self._open[identity]


_index_files = _IndexFiles()


def read_index_header(database: Path) -> IndexHeader | None:
    """The WAL index's header, or None if there is no WAL in use. Needs an open connection in this process."""
    for _ in range(_ATTEMPTS):
        raw = _index_files.read(Path(f"{database}-shm"), 96)
        if len(raw) < 96:
            return None
        # A writer changes the second copy, then the first; a reader that finds them equal has read one state.
        if raw[:48] == raw[48:] and (header := _parse_index_header(raw[:48])):
            return header
    return None


def _parse_index_header(raw: bytes) -> IndexHeader | None:
    words = struct.unpack("=12I", raw)
    first = second = 0
    for i in range(0, 10, 2):
        first = (first + words[i] + second) & 0xFFFFFFFF
        second = (second + words[i + 1] + first) & 0xFFFFFFFF
    initialized = raw[12]
    if not initialized or (first, second) != words[10:]:
        return None
    return IndexHeader(last_frame=words[4], salts=raw[32:40])


class WalReader:
    """Finds the counter's value at every commit, reading each frame once.

    `continued` says whether the last call continued in the WAL where the one before it had ended, `failed`
    whether it gave up because the WAL was started over again and again.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        self._place: tuple[bytes, int, int] | None = None
        self.frames = 0
        self.continued = self.failed = False

    def commits(self, root_page: int, generation: int) -> list[int]:
        """The counters at the commits since the last call, or since the WAL began.

        `root_page` is the page of the counter, `generation` the number on it that marks the counter as ours.
        """
        self.continued = self.failed = False
        for _ in range(_ATTEMPTS):
            before = read_index_header(self._database)
            if before is None or before.last_frame == 0:
                self._place, self.frames = None, 0
                return []
            place = (before.salts, root_page, generation)
            start = self.frames if place == self._place else 0
            found = self._scan(before, start, root_page, generation)
            after = read_index_header(self._database)
            if found is not None and after is not None and after.salts == before.salts:
                self.continued = place == self._place
                self._place, self.frames = place, before.last_frame
                return found
        self.failed = True
        return []

    def _scan(self, header: IndexHeader, start: int, root_page: int, generation: int) -> list[int] | None:
        """The counters at commits after frame `start`; None if the WAL was started over meanwhile."""
        try:
            descriptor = os.open(f"{self._database}-wal", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        # SQLite locks no bytes of the WAL itself, so this descriptor may be closed.
        try:
            (page_bytes,) = _PAGE_SIZE.unpack_from(
                os.pread(descriptor, _WAL_HEADER_BYTES, 0).ljust(32, b"\0")
            )
            frame_bytes = _FRAME_HEADER.size + page_bytes
            found: list[int] = []
            newest: int | None = None
            position = start
            while position < header.last_frame:
                wanted = min(header.last_frame - position, max(1, _CHUNK_BYTES // frame_bytes))
                chunk = os.pread(descriptor, wanted * frame_bytes, _WAL_HEADER_BYTES + position * frame_bytes)
                if len(chunk) < wanted * frame_bytes:
                    return None
                for offset in range(0, len(chunk), frame_bytes):
                    page, size_after_commit, salts = _FRAME_HEADER.unpack_from(chunk, offset)
                    if salts != header.salts:
                        return None
                    if page == root_page:
                        image = chunk[offset + _FRAME_HEADER.size : offset + frame_bytes]
                        newest = counter_in_page(image, generation)
                    if size_after_commit and newest is not None:
                        found.append(newest)
                        newest = None
                position += wanted
            return found
        finally:
            os.close(descriptor)


def counter_in_page(page: bytes, generation: int) -> int | None:
    """The counter in an image of the version table's only page; None if the page is something else.

    The page is a leaf with one row (id, generation, version), where id, being the rowid, is stored as NULL.
    """
    # Header bytes 1–2 point to free space inside the page, 3–4 count cells.
    if page[:1] != _LEAF_OF_ONE_CELL[:1] or page[3:5] != _LEAF_OF_ONE_CELL[3:]:
        return None
    cell = int.from_bytes(page[8:10], "big")
    # Payload length, rowid (0) and header length each take one byte, as do the three serial types.
    if cell + 6 > len(page) or page[cell + 1] != 0 or page[cell + 2] != 4 or page[cell + 3] != 0:
        return None
    values = []
    position = cell + 6
    for kind in page[cell + 4 : cell + 6]:
        if kind not in _INTEGER_BYTES:
            return None
        width = _INTEGER_BYTES[kind]
        values.append(
            int.from_bytes(page[position : position + width], "big", signed=True) if width else kind - 8
        )
        position += width
    return values[1] if values[0] == generation else None
