"""The view files of a project: their texts, names and order, and in which file a mistake is."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from re import IGNORECASE
from re import compile as pattern

from rollview.algebra.view import STAGE_MARK, is_stage
from rollview.catalog import Catalog, ViewRecord
from rollview.config.files import read_text
from rollview.config.project_file import ProjectFile
from rollview.errors import InputError, RollviewError, ViewError
from rollview.events import Events, FileNoted
from rollview.planning import (
    Namespace,
    in_namespace,
    is_temporary,
    referenced_names,
    view_name,
    with_temporary_views,
    without_own_qualifier,
)
from rollview.sql.text.statements import statements_of
from rollview.views.mistakes import Mistakes

_LONGEST_NAME = 100
NO_NAMESPACE = Namespace()


_NAME = pattern(
    r"\b(?:MATERIALIZED|TEMP|TEMPORARY)\s+VIEW\s+(?:IF\s+NOT\s+EXISTS\s+)?(?:`([^`]+)`|(\w+))", IGNORECASE
)


@dataclass(frozen=True)
class ViewText:
    """A view of a file: the file's path, the view's name, the text, and the names it reads.

    Before the text are as many lines as in the file, so that it says where a mistake is.
    """

    path: Path
    name: str
    sql: str
    reads: tuple[str, ...]


def read_view_files(
    paths: Iterable[Path], mistakes: Mistakes, namespace: Namespace = NO_NAMESPACE
) -> dict[str, ViewText]:
    """The view texts by name, dependencies first; without those that are wrong in themselves.

    The queries of temporary views are in the texts that read them.
    """
    written = _written_views(paths, mistakes, namespace)
    return _complete(written.stored, written, namespace, mistakes)


def read_project_views(project: ProjectFile, mistakes: Mistakes) -> dict[str, ViewText]:
    """The view texts of a project."""
    return read_view_files(project.view_files(), mistakes, _namespace_of(project))


def read_one_file(project: ProjectFile, path: Path, mistakes: Mistakes) -> dict[str, ViewText]:
    """The view texts of a file that need not be the project's, but may read its views."""
    namespace = _namespace_of(project)
    others = [each for each in project.view_files() if each.resolve() != path.resolve()]
    own, known = _written_views([path], mistakes, namespace), _written_views(others, Mistakes(), namespace)
    both = _Written(known.stored | own.stored, known.temporary | own.temporary)
    return _complete(own.stored, both, namespace, mistakes)


@dataclass(frozen=True)
class _Written:
    """The views as the files have them, those that are stored and those that are not."""

    stored: dict[str, ViewText] = field(default_factory=dict)
    temporary: dict[str, ViewText] = field(default_factory=dict)

    def all(self) -> tuple[ViewText, ...]:
        return (*self.stored.values(), *self.temporary.values())


def _namespace_of(project: ProjectFile) -> Namespace:
    """What the names in a project's files mean."""
    if project.pipeline is None:
        return NO_NAMESPACE
    sources = frozenset(entry.name for entry in project.sources)
    return Namespace(project.pipeline.catalog, project.pipeline.database, sources)


def _complete(
    texts: Mapping[str, ViewText], written: _Written, namespace: Namespace, mistakes: Mistakes
) -> dict[str, ViewText]:
    """These texts with names as the project has them, and with the temporary views that they need."""
    names = {text.name.lower() for text in written.all()}
    temporary = {
        name.lower(): in_namespace(text.sql, namespace, names) for name, text in written.temporary.items()
    }
    found: dict[str, ViewText] = {}
    for name, text in texts.items():
        with mistakes.noted(name), in_file(text.path):
            sql = with_temporary_views(in_namespace(text.sql, namespace, names), temporary)
            found[name] = text if sql == text.sql else replace(text, sql=sql, reads=referenced_names(sql))
    while cycle := _cycle(found):
        with mistakes.noted(*cycle), in_file(found[cycle[0]].path):
            raise _cycle_error(cycle)
        found = {name: text for name, text in found.items() if name not in cycle}
    return in_order(found)


def _written_views(paths: Iterable[Path], mistakes: Mistakes, namespace: Namespace) -> _Written:
    found = _Written()
    for path in paths:
        statements: tuple[str, ...] = ()
        with mistakes.noted(path.stem), in_file(path):
            statements = statements_of(read_text(path))
        for sql in statements:
            supposed = [each[1] or each[2] for each in _NAME.finditer(sql)][:1]
            supposed += [path.stem] if len(statements) == 1 else []
            with mistakes.noted(*supposed), in_file(path):
                text = _text_of(path, without_own_qualifier(sql, namespace), len(statements) == 1)
                _check_name(text.name)
                # Spark's names are case-insensitive.
                if other := next(
                    (each for each in found.all() if each.name.lower() == text.name.lower()), None
                ):
                    message = f"view `{text.name}` is already defined in {other.path.name}"
                    hint = "names that differ only in case are the same"
                    raise ViewError(message, subject=text.name, hint=hint)
                (found.temporary if is_temporary(text.sql) else found.stored)[text.name] = text
    return found


def _text_of(path: Path, sql: str, is_alone: bool) -> ViewText:
    """A statement of a file; a query that is all of it is called like the file."""
    name, reads = view_name(sql), referenced_names(sql)
    if name is None and not is_alone:
        hint = "write CREATE MATERIALIZED VIEW name AS in front of it"
        raise ViewError("a query in a file with several statements has no name", subject=path.name, hint=hint)
    return ViewText(path, name or path.stem, sql, reads)


def _check_name(name: str) -> None:
    """Refuses names that could not be written after FROM, or that stand for something else."""
    if is_stage(name):
        hint = "names like that are for the parts of a view"
        raise ViewError(f"the view's name `{name}` has a {STAGE_MARK}", subject=name, hint=hint)
    odd = next((each for each in name if not (each.isalnum() or each in "_- ")), "")
    if odd or not name.strip() or len(name) > _LONGEST_NAME:
        shown = name if len(name) <= _LONGEST_NAME else f"{name[:20]}…"
        message = f"`{shown!r}` cannot name a view".replace("`'", "`").replace("'`", "`")
        raise ViewError(message, subject=shown, hint="use letters, digits and _")


def in_order(texts: Mapping[str, ViewText]) -> dict[str, ViewText]:
    """Dependencies first; a cycle is named."""
    if cycle := _cycle(texts):
        raise _cycle_error(cycle)
    ordered: dict[str, ViewText] = {}

    def visit(name: str) -> None:
        if name not in ordered:
            for read in _read_views(texts, name):
                visit(read)
            ordered[name] = texts[name]

    for name in texts:
        visit(name)
    return ordered


def _read_views(texts: Mapping[str, ViewText], name: str) -> list[str]:
    """The views that a view reads."""
    names = {each.lower(): each for each in texts}
    return [names[read.lower()] for read in texts[name].reads if read.lower() in names]


def _cycle(texts: Mapping[str, ViewText]) -> tuple[str, ...]:
    """Views of which each reads the next and the last one the first; empty if there are none."""
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> tuple[str, ...]:
        if name in path:
            return path[path.index(name) :]
        if name not in done:
            for read in _read_views(texts, name):
                if cycle := visit(read, (*path, name)):
                    return cycle
            done.add(name)
        return ()

    return next((cycle for name in texts if (cycle := visit(name, ()))), ())


def _cycle_error(cycle: tuple[str, ...]) -> ViewError:
    shown = " → ".join((*cycle, cycle[0]))
    hint = "a view cannot read itself, not even through others"
    return ViewError(f"views form a cycle: {shown}", subject=cycle[0], hint=hint)


@contextmanager
def in_file(path: Path) -> Iterator[None]:
    """Says in which file a mistake is: an error about input gets the file's name in front, and as a field."""
    try:
        yield
    except InputError as error:
        named = error.message.startswith(path.name)
        message = error.message if named else f"{path.name}: {error.message}"
        raise type(error)(
            message, subject=error.subject, hint=error.hint, file=str(path), line=error.line
        ) from None


# Differences of the view files from what is set up: changed, gone, broken, new.


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
        texts = read_project_views(project, mistakes)
    except Exception as error:  # Whatever is in a file, views continue, and mistakes in others are reported.
        return FileNotes({}, broken={"view files": (str(error).splitlines() or [type(error).__name__])[0]})
    notes = {}
    for name, record in records.items():
        if is_stage(name):
            continue
        if (mistake := mistakes.of(name)) is not None:
            notes[name] = f"its file cannot be used, and the view continues as before: {_line(mistake)}"
        elif name not in texts:
            notes[name] = "its file is gone: `rollview setup` drops it"
        elif texts[name].sql.strip() != record.sql.strip():
            notes[name] = "its file has changed: `rollview setup` applies the change"
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
    """Reports view files that differ from what is set up, once for each change."""

    def __init__(self, project: ProjectFile, catalog: Catalog, events: Events) -> None:
        self._project, self._catalog, self._events = project, catalog, events
        self._looked = float("-inf")
        self._files: object = None
        self._reported: dict[str, str] = {}

    def poll(self) -> None:
        """Looks at the files from time to time, and into them where something is new."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        records = self._catalog.views.all()
        seen = written_files(self._project), [(name, record.sql) for name, record in records.items()]
        if seen == self._files:
            return
        self._files = seen
        found = file_notes(self._project, records)
        notes = {**found.of_views, **found.broken}
        for name in self._reported.keys() - notes.keys():
            self._events.emit(FileNoted(name, ""))
        for name, note in notes.items():
            if self._reported.get(name) != note:
                self._events.emit(FileNoted(name, note))
        self._reported = notes
