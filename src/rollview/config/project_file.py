"""The project file `rollview.yml`, read and checked; every mistake is reported with its place.

`${NAME}` in a value is replaced by the environment's variable of that name. Paths are relative to the
file's own folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rollview.ascii_text import url_scheme
from rollview.config.durations import EXAMPLES, seconds_of
from rollview.config.files import read_text
from rollview.config.pipeline_spec import PipelineSpec, read_pipeline_spec
from rollview.config.yaml_file import YamlFile
from rollview.errors import OptionError, ProjectError
from rollview.object_storage import LOCAL_PART, SETTINGS, is_s3
from rollview.secrets import Secrets, passwords_in

# `${NAME}` in a setting: the environment's variable, quoted as its place in the text requires.
#
# In an address (`scheme://user:password@host/name?option=value`) a value is percent-encoded, so that a
# password may have any characters; not so where it is the host, which may come with a port, or the whole
# part before the `@`, which may be user and password. In `key=value` settings, as libpq has them, it is
# quoted. A value that is all of a setting is taken as it is.


VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SECRET_NAME = re.compile(r"pass|pwd|secret|token|credential|(api|private|access)_?key", re.IGNORECASE)


def expand(text: str, value_of: Callable[[str], str]) -> str:
    """The setting with its variables replaced."""
    found = list(VARIABLE.finditer(text))
    for match in reversed(found):
        value = _written(text, match, value_of(match[1]))
        text = text[: match.start()] + value + text[match.end() :]
    return text


def is_secret(name: str) -> bool:
    """Whether a variable or a setting of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def _written(text: str, match: re.Match[str], value: str) -> str:
    before, after = text[: match.start()], text[match.end() :]
    if not before and not after:
        return value
    if address := _ADDRESS.match(before):
        return _in_address(before[address.end() :], after, value)
    if before.endswith("=") and "'" not in before.rpartition(" ")[2]:
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    return value


def _in_address(before: str, after: str, value: str) -> str:
    is_behind_host = "/" in before or "?" in before
    authority = re.split(r"[/?]", after, maxsplit=1)[0]
    if not is_behind_host and "@" not in authority:
        return value
    if not before and authority.startswith("@"):
        return value
    return quote(value, safe="")


DEFAULT_NAME = "rollview.yml"

_KEYS = (
    *("name", "lake", "catalog", "spark", "sources", "views", "functions", "retention", "step_seconds"),
    *("lookup_seconds", "storage", "openlineage", "global_transactions", "answers", "pipeline"),
)
_FUNCTION_KEYS = ("deterministic", "file", "returns")
_RETENTION_KEYS = ("changes", "deltas", "files")
_GLOBAL_KEYS = ("give_up_after",)
_ANSWERS_KEYS = ("at_once", "wait", "time", "rows", "megabytes", "memory", "disk")
_MOST_AT_ONCE = 8
_LEAST_MEMORY = 512
_OPENLINEAGE_KEYS = ("file", "url", "endpoint", "api_key", "namespace", "timeout")
_KINDS_AT_URLS = ("delta", "files")
"""The types of sources whose `path` may be a prefix of a bucket."""

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _is_local(spark: Mapping[str, str]) -> bool:
    """Whether Spark works on this machine."""
    return spark.get("master", "").startswith("local")


def in_folder(url: str, folder: Path) -> str:
    """The address of a catalog, whose file is relative to the folder of the project file."""
    relative = url.removeprefix("sqlite:///")
    if relative != url and not relative.startswith("/") and relative != ":memory:":
        return f"sqlite:///{(folder / relative).absolute()}"
    return url


def typed_address(said: str, folder: Path) -> str:
    """The address of a catalog as a command was given it: a password has to be a variable."""

    def value_of(name: str) -> str:
        if name not in os.environ:
            raise OptionError(f"the environment has no variable {name}", subject=name)
        return os.environ[name]

    if any(not VARIABLE.fullmatch(password) for password in passwords_in(said)):
        hint = "write it as '${NAME}', in single quotes: others can read command lines"
        raise OptionError("the address has a password", subject="catalog", hint=hint)
    address = expand(said, value_of)
    if "://" not in address:
        hint = "for example sqlite:///./lake/catalog.db"
        raise OptionError(f"{said} is no address of a catalog", subject="catalog", hint=hint)
    return in_folder(address, folder)


@dataclass(frozen=True)
class SourceEntry:
    """One entry under `sources`: its name, its type, and all other settings as text."""

    name: str
    kind: str
    # Not shown: a password may be among them.
    settings: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class FunctionEntry:
    """One entry under `functions`: a function that views may use; its code may be in a file."""

    name: str
    file: Path | None
    returns: str


@dataclass(frozen=True)
class Retention:
    """How long, in seconds, to keep what is no longer needed: change logs, view deltas, old files."""

    changes: float = 86400.0
    deltas: float = 7 * 86400.0
    files: float = 3600.0


@dataclass(frozen=True)
class AnswerLimits:
    """Limits of answers to `read`, `deltas`, `query` and the page, beside the maintenance of the project.

    At most `at_once` are computed; others wait for `wait` seconds. An answer takes at most `time` seconds,
    has limited rows and megabytes, and uses limited megabytes of memory and disk while it is computed.
    """

    at_once: int = 2
    wait: float = 20.0
    time: float = 120.0
    rows: int = 1_000_000
    megabytes: int = 256
    memory: int = 2048
    disk: int = 10240


@dataclass(frozen=True)
class OpenLineageEntry:
    """The target of lineage events: a file, to which they are appended, or the URL of a collector.

    `endpoint` is the path behind the URL, empty for the usual one; `namespace` is that of the jobs.
    """

    file: Path | None = None
    # Not shown: it permits writing to the collector.
    url: str = field(default="", repr=False)
    endpoint: str = ""
    api_key: str = field(default="", repr=False)
    namespace: str = "rollview"
    timeout: float = 5.0


@dataclass(frozen=True)
class ProjectFile:
    """The settings of a project, with absolute paths."""

    path: Path
    name: str
    lake: Path
    """The folder of the lake; of one at a URL, what this machine has beside it."""
    # Not shown: both may have passwords.
    catalog: str = field(repr=False)
    spark: Mapping[str, str] = field(repr=False)
    sources: tuple[SourceEntry, ...]
    views: tuple[str, ...]
    functions: tuple[FunctionEntry, ...] = ()
    retention: Retention = field(default_factory=Retention)
    step_seconds: float = 5.0
    lookup_seconds: float = 2.0
    give_up_after: float = 300.0
    """For how many seconds a part of a global transaction is waited for."""
    openlineage: OpenLineageEntry | None = None
    answers: AnswerLimits = field(default_factory=AnswerLimits)
    lake_url: str = ""
    pipeline: PipelineSpec | None = None
    """The specification of a pipeline whose files are views, too."""
    # Not shown: it has the keys of the lake.
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: Secrets = field(default_factory=lambda: Secrets(()), repr=False, compare=False)

    @property
    def folder(self) -> Path:
        return self.path.parent

    def view_files(self) -> tuple[Path, ...]:
        """The files that the view patterns match, in order of their names."""
        found: dict[Path, None] = {}
        for pattern in self.views:
            matches = sorted(self._matching(pattern))
            if not matches and not any(sign in pattern for sign in "*?["):
                raise ProjectError(f"views: {pattern} does not exist", subject=pattern)
            found.update(dict.fromkeys(matches))
        if self.pipeline is not None:
            found.update(dict.fromkeys(self.pipeline.files()))
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
    return _Reading(path, text).project()


def _as_text(setting: Any) -> str:
    """A setting of a source; a list is the same as its items with commas between."""
    return ", ".join(map(str, setting)) if isinstance(setting, list) else str(setting)


class _Reading(YamlFile):
    """Reads the settings; secrets are remembered."""

    def __init__(self, path: Path, text: str) -> None:
        super().__init__(path, text)
        self.secrets: set[str] = set()

    def project(self) -> ProjectFile:
        content = self.content()
        if not isinstance(content, dict):
            raise self.fail("the file must be a mapping of settings", "", f"known: {', '.join(_KEYS)}")
        if "libraries" in content and "sources" not in content:
            hint = "write a project file with the sources, and in it pipeline: " + self.path.name
            raise self.fail("this is the specification of a pipeline", "libraries", hint)
        self.only(content, _KEYS, "setting")
        folder = self.path.parent
        pipeline = self._pipeline(content)
        place = self.text(content, "lake", "./lake")
        url = self._lake_url(content, place)
        lake = folder / (LOCAL_PART if url else place)
        catalog = self.text(content, "catalog", f"sqlite:///{lake / 'catalog.db'}")
        spark = self._spark(content.get("spark"), url, pipeline)
        return ProjectFile(
            path=self.path,
            name=self.text(content, "name", folder.name if pipeline is None else pipeline.name),
            lake=lake,
            lake_url=url,
            storage=self._storage(content.get("storage"), url),
            catalog=self._catalog(catalog, folder),
            spark=spark,
            sources=self._sources(content.get("sources"), spark),
            views=self._patterns(content.get("views", ["views/*.sql"] if pipeline is None else [])),
            pipeline=pipeline,
            functions=self._functions(content.get("functions")),
            retention=self._retention(content.get("retention")),
            step_seconds=self._duration("step_seconds", content.get("step_seconds", 5)),
            lookup_seconds=self._duration("lookup_seconds", content.get("lookup_seconds", 2)),
            give_up_after=self._give_up_after(content.get("global_transactions")),
            openlineage=self._openlineage(content.get("openlineage")),
            answers=self._answers(content.get("answers")),
            secrets=Secrets(self.secrets),
        )

    def text(self, content: Mapping[str, Any], key: str, default: str) -> str:
        value = content.get(key, default)
        if not isinstance(value, str | int | float) or value == "":
            raise self.fail(f"`{key}` must be text", key)
        return self.expand(str(value))

    def expand(self, value: str, setting: str = "") -> str:
        """A setting with its variables replaced. Secrets are remembered."""

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

    def _lake_url(self, content: Mapping[str, Any], place: str) -> str:
        """The URL of a lake on object storage; empty if it is a folder."""
        if not url_scheme(place):
            return ""
        if not is_s3(place):
            raise self.fail(
                f"`lake` must be a folder or s3://BUCKET/PREFIX; `{place}` is not supported",
                "lake",
                "for example ./lake; a mounted file system needs atomic renames and fsync",
            )
        if "catalog" not in content:
            raise self.fail(
                "`catalog` is missing: only a lake in a folder has a catalog in it",
                "lake",
                "for example catalog: sqlite:///./catalog.db, or a PostgreSQL",
            )
        return place

    def _storage(self, value: Any, url: str) -> dict[str, str]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            example = "for example {region: eu-central-1, secret_access_key: ${AWS_SECRET_ACCESS_KEY}}"
            raise self.fail("`storage` must be a mapping", "storage", example)
        self.only(value, SETTINGS, "setting of storage:")
        if not url:
            raise self.fail("`storage` is for a lake at a URL, and this one is in a folder", "storage")
        return {str(key): self.expand(str(each), str(key)) for key, each in value.items()}

    def _catalog(self, url: str, folder: Path) -> str:
        if "://" not in url:
            hint = "for example sqlite:///./lake/catalog.db"
            raise self.fail("`catalog` must be a database URL", "catalog", hint)
        return in_folder(url, folder)

    def _pipeline(self, content: Mapping[str, Any]) -> PipelineSpec | None:
        """The specification of a pipeline whose files are views of the project."""
        if "pipeline" not in content:
            return None
        path = self.path.parent / self.text(content, "pipeline", "")
        if not path.is_file():
            raise self.fail(f"`pipeline`: {path.name} is not a file", "pipeline")
        return read_pipeline_spec(path)

    def _spark(self, value: Any, lake_url: str, pipeline: PipelineSpec | None) -> dict[str, str]:
        value = {} if value is None else value
        if not isinstance(value, dict):
            raise self.fail("`spark` must be a mapping", "spark", 'for example {master: "local[*]"}')
        settings = {str(key): self.expand(str(each), str(key)) for key, each in value.items()}
        for key, said in ({} if pipeline is None else pipeline.configuration).items():
            # Nothing in it is a variable, but it may be a secret all the same.
            self.secrets.update([said] if is_secret(key) else passwords_in(said))
            if settings.setdefault(key, said) != said:
                message = f"`{key}` has one value in `spark`, and another one in the pipeline"
                raise self.fail(message, key, "keep one of them")
        if "master" in settings and "remote" in settings:
            raise self.fail("`spark` has both `master` and `remote`", "spark", "keep one of them")
        if not settings.keys() & {"master", "remote"}:
            settings["master"] = "local[*]"
        if lake_url and not _is_local(settings):
            raise self.fail(
                "a lake on object storage needs Spark on this machine, where the copies of its files are",
                "spark",
                'write spark: {master: "local[*]"}, or name a folder in `lake` that all machines see',
            )
        return settings

    def _sources(self, value: Any, spark: Mapping[str, str]) -> tuple[SourceEntry, ...]:
        if not isinstance(value, dict) or not value:
            hint = "for example sources: {shop: {type: sqlite, path: ./shop.db}}"
            raise self.fail("`sources` must name at least one source", "sources", hint)
        sources = tuple(self._source(str(name), entry) for name, entry in value.items())
        for source in sources:
            if source.kind in _KINDS_AT_URLS and is_s3(source.settings.get("path", "")):
                self._check_local(source.name, spark)
        return sources

    def _check_local(self, source: str, spark: Mapping[str, str]) -> None:
        if not _is_local(spark):
            raise self.fail(
                f"source `{source}` is on object storage, which needs Spark on this machine, where the "
                "copies of its files are",
                source,
                'write spark: {master: "local[*]"}, or copy the files to a folder that all machines see',
            )

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
        self.only(entry, _FUNCTION_KEYS, f"setting of the function {name}:")
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
        self.only(value, _RETENTION_KEYS, "retention")
        return Retention(**{key: self._duration(key, each) for key, each in value.items()})

    def _give_up_after(self, value: Any) -> float:
        """How long a part of a global transaction is waited for; `never` disables that."""
        example = "for example {give_up_after: 5m}"
        if value is None:
            return ProjectFile.give_up_after
        if not isinstance(value, dict):
            raise self.fail("`global_transactions` must be a mapping", "global_transactions", example)
        self.only(value, _GLOBAL_KEYS, "setting of global_transactions:")
        given = value.get("give_up_after", ProjectFile.give_up_after)
        return float("inf") if given == "never" else self._duration("give_up_after", given)

    def _answers(self, value: Any) -> AnswerLimits:
        if value is None:
            return AnswerLimits()
        if not isinstance(value, dict):
            raise self.fail("`answers` must be a mapping", "answers", "for example {at_once: 2, time: 2m}")
        self.only(value, _ANSWERS_KEYS, "setting of answers:")
        usual = AnswerLimits()
        limits = AnswerLimits(
            at_once=self._count("at_once", value.get("at_once", usual.at_once)),
            wait=self._duration("wait", value.get("wait", usual.wait)),
            time=self._duration("time", value.get("time", usual.time)),
            rows=self._count("rows", value.get("rows", usual.rows)),
            megabytes=self._count("megabytes", value.get("megabytes", usual.megabytes)),
            memory=self._size("memory", value.get("memory", usual.memory)),
            disk=self._size("disk", value.get("disk", usual.disk)),
        )
        if limits.memory < _LEAST_MEMORY:
            raise self.fail(f"`memory` of answers is {_LEAST_MEMORY}m at least: Spark needs it", "memory")
        if limits.at_once > _MOST_AT_ONCE:
            raise self.fail(f"`at_once` of answers is {_MOST_AT_ONCE} at most", "at_once")
        return limits

    def _size(self, key: str, value: Any) -> int:
        """Megabytes, from a text such as `512m`."""
        found = re.fullmatch(r"([1-9][0-9]{0,8})([mg])", str(value))
        if found is not None:
            return int(found[1]) * (1024 if found[2] == "g" else 1)
        if isinstance(value, str):
            raise self.fail(f"`{key}`: `{value}` is not a size", key, "for example 512m or 2g")
        return self._count(key, value)

    def _count(self, key: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.fail(f"`{key}`: {value!r} is not a whole number above 0", key)
        return value

    def _openlineage(self, value: Any) -> OpenLineageEntry | None:
        example = "for example openlineage: {file: lineage.jsonl}, or {url: http://localhost:5000}"
        if value is None:
            return None
        if not isinstance(value, dict) or ("file" in value) == ("url" in value):
            raise self.fail("`openlineage` needs either a `file` or a `url`", "openlineage", example)
        self.only(value, _OPENLINEAGE_KEYS, "setting of openlineage:")
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
            raise self.fail(f"`{key}`: {value!r} is not a valid duration", key, f"for example {EXAMPLES}")
        return seconds
