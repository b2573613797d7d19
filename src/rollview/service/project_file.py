"""The project file `rollview.yml`: read, checked, and with every mistake named by its place.

`${NAME}` in a value is replaced by the environment's variable of that name. Paths are relative to the
file's own folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from rollview.errors import ProjectError
from rollview.secrets import Secrets, passwords_in
from rollview.service.durations import seconds_of
from rollview.service.text_files import read_text
from rollview.service.variables import expand, is_secret

DEFAULT_NAME = "rollview.yml"

_KEYS = (
    *("name", "lake", "catalog", "spark", "sources", "views", "functions", "retention", "step_seconds"),
    "openlineage",
)
_FUNCTION_KEYS = ("deterministic", "file", "returns")
_RETENTION_KEYS = ("changes", "deltas", "files")
_OPENLINEAGE_KEYS = ("file", "url", "endpoint", "api_key", "namespace", "timeout")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class SourceEntry:
    """One entry under `sources`: its name, its type, and all other settings as text."""

    name: str
    kind: str
    settings: Mapping[str, str]


@dataclass(frozen=True)
class FunctionEntry:
    """One entry under `functions`: a function that views may use; its code may be in a file."""

    name: str
    file: Path | None
    returns: str


@dataclass(frozen=True)
class Retention:
    """How long, in seconds, to keep what nothing needs any more: change logs, view deltas, old files."""

    changes: float = 86400.0
    deltas: float = 7 * 86400.0
    files: float = 3600.0


@dataclass(frozen=True)
class OpenLineageEntry:
    """Where run events with lineage go: a file, to which they are appended, or the URL of a collector.

    `endpoint` is the path behind the URL, empty for the usual one; `namespace` is that of the jobs.
    """

    file: Path | None = None
    url: str = ""
    endpoint: str = ""
    # Not shown: whoever has it can write to the collector.
    api_key: str = field(default="", repr=False)
    namespace: str = "rollview"
    timeout: float = 5.0


@dataclass(frozen=True)
class ProjectFile:
    """The settings of a project, with absolute paths."""

    path: Path
    name: str
    lake: Path
    catalog: str
    spark: Mapping[str, str]
    sources: tuple[SourceEntry, ...]
    views: tuple[str, ...]
    functions: tuple[FunctionEntry, ...] = ()
    retention: Retention = field(default_factory=Retention)
    step_seconds: float = 5.0
    openlineage: OpenLineageEntry | None = None
    secrets: Secrets = field(default_factory=lambda: Secrets(()), repr=False, compare=False)

    @property
    def folder(self) -> Path:
        """The folder that relative paths start from."""
        return self.path.parent

    def view_files(self) -> tuple[Path, ...]:
        """The files that the view patterns match, in order of their names."""
        found: dict[Path, None] = {}
        for pattern in self.views:
            matches = sorted(self._matching(pattern))
            if not matches and not any(sign in pattern for sign in "*?["):
                raise ProjectError(f"views: {pattern} does not exist", subject=pattern)
            found.update(dict.fromkeys(matches))
        return tuple(found)

    def _matching(self, pattern: str) -> list[Path]:
        """Files, wherever the pattern leads; folders are not views."""
        start = Path(pattern).anchor
        try:
            found = Path(start or self.folder).glob(pattern[len(start) :])
            return [path for path in found if not path.is_dir()]
        except (ValueError, NotImplementedError, IndexError, OSError) as error:
            message = f"{self.path.name}: views: `{pattern}` is not a file pattern: {error}"
            raise ProjectError(message, subject=pattern, hint="for example views/*.sql") from None


def read_project_file(path: Path) -> ProjectFile:
    """Reads and checks a project file; a folder stands for the `rollview.yml` in it."""
    path = (path / DEFAULT_NAME if path.is_dir() else path).absolute()
    try:
        text = read_text(path)
    except ProjectError as error:
        hint = error.hint or "`rollview init DIR` writes a small working project"
        raise ProjectError(error.message, subject=error.subject, hint=hint) from None
    try:
        content = yaml.safe_load(text)
    except RecursionError:
        raise ProjectError(f"{path.name} is nested too deeply", subject=str(path)) from None
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        where = f" (line {place.line + 1}, column {place.column + 1})" if place else ""
        problem = getattr(error, "problem", None) or "it is not YAML"
        raise ProjectError(f"{path.name}: {problem}{where}", subject=str(path)) from None
    return _Reading(path, text).project(content)


def _as_text(setting: Any) -> str:
    """A setting of a source; a list is the same as its items with commas between."""
    return ", ".join(map(str, setting)) if isinstance(setting, list) else str(setting)


class _Reading:
    """Knows the text, so that a mistake can be shown with its line."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.lines = text.splitlines()
        self.secrets: set[str] = set()

    def fail(self, message: str, subject: str, hint: str = "") -> ProjectError:
        pattern = re.compile(rf"^\s*[\"']?{re.escape(subject)}[\"']?\s*:|{re.escape(subject)}")
        line = next((number for number, each in enumerate(self.lines, 1) if pattern.search(each)), None)
        where = f" (line {line})" if line and subject else ""
        return ProjectError(f"{self.path.name}{where}: {message}", subject=subject, hint=hint)

    def project(self, content: Any) -> ProjectFile:
        if not isinstance(content, dict):
            raise self.fail("the file must be a mapping of settings", "", f"known: {', '.join(_KEYS)}")
        self._only(content, _KEYS, "setting")
        folder = self.path.parent
        lake = folder / self.text(content, "lake", "./lake")
        catalog = self.text(content, "catalog", f"sqlite:///{lake / 'catalog.db'}")
        return ProjectFile(
            path=self.path,
            name=self.text(content, "name", folder.name),
            lake=lake,
            catalog=self._catalog(catalog, folder),
            spark=self._spark(content.get("spark")),
            sources=self._sources(content.get("sources")),
            views=self._patterns(content.get("views", ["views/*.sql"])),
            functions=self._functions(content.get("functions")),
            retention=self._retention(content.get("retention")),
            step_seconds=self._duration("step_seconds", content.get("step_seconds", 5)),
            openlineage=self._openlineage(content.get("openlineage")),
            secrets=Secrets(self.secrets),
        )

    def _only(self, content: Mapping[Any, Any], known: tuple[str, ...], what: str) -> None:
        for key in content:
            if key not in known:
                close = get_close_matches(str(key), known, 1)
                hint = f"did you mean `{close[0]}`?" if close else f"known: {', '.join(known)}"
                raise self.fail(f"unknown {what} `{key}`", str(key), hint)

    def text(self, content: Mapping[str, Any], key: str, default: str) -> str:
        value = content.get(key, default)
        if not isinstance(value, str | int | float) or value == "":
            raise self.fail(f"`{key}` must be text", key)
        return self.expand(str(value))

    def expand(self, value: str, setting: str = "") -> str:
        """A setting with its variables replaced. What nobody may read is remembered."""

        def value_of(name: str) -> str:
            if name not in os.environ:
                raise self.fail(f"the environment has no variable {name}", name)
            if is_secret(name) or is_secret(setting):
                self.secrets.add(os.environ[name])
            return os.environ[name]

        text = expand(value, value_of)
        if is_secret(setting):
            self.secrets.add(text)
        self.secrets.update(passwords_in(text))
        return text

    def _catalog(self, url: str, folder: Path) -> str:
        if "://" not in url:
            hint = "for example sqlite:///./lake/catalog.db"
            raise self.fail("`catalog` must be a database URL", "catalog", hint)
        relative = url.removeprefix("sqlite:///")
        if relative != url and not relative.startswith("/") and relative != ":memory:":
            return f"sqlite:///{(folder / relative).absolute()}"
        return url

    def _spark(self, value: Any) -> dict[str, str]:
        if value is None:
            return {"master": "local[*]"}
        if not isinstance(value, dict):
            raise self.fail("`spark` must be a mapping", "spark", 'for example {master: "local[*]"}')
        settings = {str(key): self.expand(str(each), str(key)) for key, each in value.items()}
        if "master" in settings and "remote" in settings:
            raise self.fail("`spark` has both `master` and `remote`", "spark", "keep one of them")
        if not settings.keys() & {"master", "remote"}:
            settings["master"] = "local[*]"
        return settings

    def _sources(self, value: Any) -> tuple[SourceEntry, ...]:
        if not isinstance(value, dict) or not value:
            hint = "for example sources: {shop: {type: sqlite, path: ./shop.db}}"
            raise self.fail("`sources` must name at least one source", "sources", hint)
        return tuple(self._source(str(name), entry) for name, entry in value.items())

    def _source(self, name: str, entry: Any) -> SourceEntry:
        if not _WORD.fullmatch(name):
            raise self.fail(f"`{name}` cannot name a source", name, "use letters, digits and _")
        if not isinstance(entry, dict) or "type" not in entry:
            raise self.fail(
                f"source `{name}` has no `type`", name, "for example {type: sqlite, path: ./a.db}"
            )
        given = {str(key): _as_text(each) for key, each in entry.items() if key != "type"}
        settings = {key: self.expand(each, key) for key, each in given.items()}
        return SourceEntry(name, str(entry["type"]), settings)

    def _patterns(self, value: Any) -> tuple[str, ...]:
        patterns = [value] if isinstance(value, str) else value
        if not isinstance(patterns, list) or not all(isinstance(each, str) for each in patterns):
            raise self.fail("`views` must be a list of file patterns", "views", 'for example ["views/*.sql"]')
        return tuple(patterns)

    def _functions(self, value: Any) -> tuple[FunctionEntry, ...]:
        example = "for example functions: {score: {deterministic: true, file: score.py, returns: double}}"
        if value is None:
            return ()
        if not isinstance(value, dict):
            raise self.fail("`functions` must be a mapping", "functions", example)
        return tuple(self._function(str(name), entry, example) for name, entry in value.items())

    def _function(self, name: str, entry: Any, example: str) -> FunctionEntry:
        if not _WORD.fullmatch(name) or not isinstance(entry, dict):
            raise self.fail(f"`{name}` is not the entry of a function", name, example)
        self._only(entry, _FUNCTION_KEYS, f"setting of the function {name}:")
        if entry.get("deterministic") is not True:
            message = f"the function {name} is not declared deterministic, and views can use no other"
            hint = "write deterministic: true, if its value depends on nothing but its arguments"
            raise self.fail(message, name, hint)
        if ("file" in entry) != ("returns" in entry):
            message = f"the function {name} needs both `file` and `returns`, or neither"
            raise self.fail(message, name, example)
        file = self.path.parent / self.text(entry, "file", "") if "file" in entry else None
        return FunctionEntry(name, file, str(entry.get("returns", "")))

    def _retention(self, value: Any) -> Retention:
        if value is None:
            return Retention()
        if not isinstance(value, dict):
            raise self.fail(
                "`retention` must be a mapping", "retention", "for example {changes: 1d, deltas: 7d}"
            )
        self._only(value, _RETENTION_KEYS, "retention")
        return Retention(**{key: self._duration(key, each) for key, each in value.items()})

    def _openlineage(self, value: Any) -> OpenLineageEntry | None:
        example = "for example openlineage: {file: lineage.jsonl}, or {url: http://localhost:5000}"
        if value is None:
            return None
        if not isinstance(value, dict) or ("file" in value) == ("url" in value):
            raise self.fail("`openlineage` needs either a `file` or a `url`", "openlineage", example)
        self._only(value, _OPENLINEAGE_KEYS, "setting of openlineage:")
        for key in value:
            self.text(value, key, "")
        given = {key: self.expand(str(each), key) for key, each in value.items() if key != "timeout"}
        url, file = given.get("url", ""), given.get("file")
        if url and not re.match(r"https?://[^/\s]", url):
            raise self.fail("`url` of openlineage must begin with http:// or https://", "url", example)
        return OpenLineageEntry(
            file=None if file is None else self.path.parent / file,
            url=url,
            endpoint=given.get("endpoint", ""),
            api_key=given.get("api_key", ""),
            namespace=given.get("namespace", OpenLineageEntry.namespace),
            timeout=self._duration("timeout", value.get("timeout", OpenLineageEntry.timeout)),
        )

    def _duration(self, key: str, value: Any) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            return float(value)
        seconds = seconds_of(str(value))
        if seconds is None:
            raise self.fail(
                f"`{key}`: {value!r} is not a valid duration", key, "for example 90s, 15m, 2h, 7d"
            )
        return seconds
