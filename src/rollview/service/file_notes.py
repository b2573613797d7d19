"""What the view files say that `setup` has not seen: changed, gone, broken, new."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rollview.algebra.view import is_stage
from rollview.catalog import Catalog, ViewRecord
from rollview.errors import RollviewError
from rollview.events import Events, FileNoted
from rollview.service.definitions import read_view_files
from rollview.service.mistakes import Mistakes
from rollview.service.project_file import ProjectFile

LOOK_SECONDS = 5.0


@dataclass(frozen=True)
class FileNotes:
    """By view what is to be said of its file; views that are not set up; files that nobody can read.

    `broken` gives the mistake by the name that the file has, where no view that is set up is of it.
    """

    of_views: Mapping[str, str]
    missing: tuple[str, ...] = ()
    broken: Mapping[str, str] = field(default_factory=dict)


def file_notes(project: ProjectFile, records: Mapping[str, ViewRecord]) -> FileNotes:
    """Reads the view files; one that is broken keeps nobody from reading the others."""
    mistakes = Mistakes(project.folder)
    try:
        texts = read_view_files(project.view_files(), mistakes)
    except Exception as error:  # Whatever a file has in it, views go on, and the others are told of.
        return FileNotes({}, broken={"view files": (str(error).splitlines() or [type(error).__name__])[0]})
    notes = {}
    for name, record in records.items():
        if is_stage(name):
            continue
        if (mistake := mistakes.of(name)) is not None:
            notes[name] = f"its file cannot be used, and the view goes on as before: {_line(mistake)}"
        elif name not in texts:
            notes[name] = "its file is gone: `rollview setup` drops it"
        elif texts[name].sql.strip() != record.sql.strip():
            notes[name] = "its file has changed: `rollview setup` reloads it"
    known = {mistakes.of(name) for name in notes}
    broken = {each.subject or "a view file": _line(each) for each in mistakes.found if each not in known}
    return FileNotes(notes, tuple(name for name in texts if name not in records), broken)


def _line(mistake: RollviewError) -> str:
    return str(mistake).splitlines()[0]


def written_files(project: ProjectFile) -> tuple[tuple[str, int], ...]:
    """The view files and when each was last written: `file_notes` is worth another look if it differs."""
    return tuple((str(path), _written(path)) for path in project.view_files())


def _written(path: Path) -> int:
    """When a file was written; 0 if it is not there, as behind a link that leads nowhere."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


class FileWatch:
    """Tells of view files that no longer are what is set up, once for each change."""

    def __init__(self, project: ProjectFile, catalog: Catalog, events: Events) -> None:
        self._project, self._catalog, self._events = project, catalog, events
        self._looked = float("-inf")
        self._files: object = None
        self._told: dict[str, str] = {}

    def look(self) -> None:
        """Looks at the files from time to time, and into them where something is new."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        records = self._catalog.views()
        seen = written_files(self._project), [(name, record.sql) for name, record in records.items()]
        if seen == self._files:
            return
        self._files = seen
        found = file_notes(self._project, records)
        notes = {**found.of_views, **found.broken}
        for name in self._told.keys() - notes.keys():
            self._events.emit(FileNoted(name, ""))
        for name, note in notes.items():
            if self._told.get(name) != note:
                self._events.emit(FileNoted(name, note))
        self._told = notes
