"""Which small files are worth putting together, and which files nobody needs any more."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from rollview.lake.data_files import CSN, STAGING, LakeFile
from rollview.object_storage import StoredFile

SAFE_AGE_SECONDS = 86_400.0
"""A file that no commit names may belong to a write that is still running, until it is this old."""

_FEWEST = 8


def groups_to_compact(
    files: Sequence[LakeFile], target_rows: int, upto: int | None
) -> tuple[tuple[LakeFile, ...], ...]:
    """Groups of files, neighbours by csn, each of which is worth becoming one file or a few.

    A file is rewritten only together with at least as many rows of other files, so that a row is
    rewritten a logarithmic number of times, however small the appends are.
    """
    ordered = sorted(files, key=lambda file: (file.minimum.get(CSN, 0), file.maximum.get(CSN, 0), file.path))
    runs = groupby(ordered, key=lambda file: _is_open(file, target_rows, upto))
    return tuple(
        part
        for small, run in runs
        if small
        for group in _worthwhile(tuple(run))
        for part in _cut(group, target_rows)
    )


def _is_open(file: LakeFile, target_rows: int, upto: int | None) -> bool:
    """Whether a file is small and wholly inside the range that may be compacted."""
    if upto is not None and not (CSN in file.maximum and file.maximum[CSN] <= upto):
        return False
    return file.rows * 2 <= target_rows


def _worthwhile(run: tuple[LakeFile, ...]) -> Iterator[tuple[LakeFile, ...]]:
    """Parts of a run in which no file outweighs all the others together."""
    if len(run) < _FEWEST:
        return
    largest = max(range(len(run)), key=lambda place: run[place].rows)
    if run[largest].rows * 2 <= sum(file.rows for file in run):
        yield run
        return
    yield from _worthwhile(run[:largest])
    yield from _worthwhile(run[largest + 1 :])


def _cut(group: tuple[LakeFile, ...], target_rows: int) -> Iterator[tuple[LakeFile, ...]]:
    """Pieces of about the wanted size, so that only one piece has to be in memory at a time."""
    before = 0
    numbered = []
    for file in group:
        numbered.append((before // target_rows, file))
        before += file.rows
    for _, piece in groupby(numbered, key=lambda pair: pair[0]):
        files = tuple(file for _, file in piece)
        if len(files) > 1:
            yield files


def needless_files(
    found: Sequence[StoredFile],
    present: Mapping[str, LakeFile],
    removals: Mapping[str, float],
    now: float,
    keep_seconds: float,
) -> Iterator[str]:
    """The data files that no version within `keep_seconds` uses, and old ones that no commit ever named."""
    for file in found:
        if file.name in present:
            continue
        if file.name in removals:
            if removals[file.name] < now - keep_seconds:
                yield file.name
        elif now - file.modified > max(SAFE_AGE_SECONDS, keep_seconds):
            yield file.name


def clear_staging(folder: Path, now: float) -> None:
    """Deletes what Spark writes that never finished have left behind."""
    for staged in (folder / STAGING).glob("*"):
        ages = [_age(path, now) for path in (staged, *staged.rglob("*"))]
        if min(ages) > SAFE_AGE_SECONDS:
            shutil.rmtree(staged, ignore_errors=True)


def _age(path: Path, now: float) -> float:
    try:
        return now - path.stat().st_mtime
    except FileNotFoundError:
        # Gone meanwhile, so another process works there.
        return 0.0
