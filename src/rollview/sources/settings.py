"""The settings of a source: its entry in the project file, and the service's folders and readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Protocol, TypeVar

from rollview.ascii_text import number_of, url_scheme
from rollview.errors import InputError, OptionError
from rollview.object_storage import LOCAL_PART, SETTINGS, is_s3
from rollview.sources.bucket import Bucket, open_bucket

# Runs a large piece of reading: in threads of this process, or as the service provides.
#
# A task opens a connection of its own, so that it can be sent to another machine; it gives back a few
# bytes, or writes what it read to a file. All tasks of one reading share a snapshot, which the source holds
# open until they are done.


Shared = TypeVar("Shared")

_THREADS = 4


class Workers(Protocol):
    """Does several tasks at once."""

    def run(self, tasks: Sequence[Callable[[Shared], bytes]], shared: Shared) -> list[bytes]:
        """The results of all, in order; raises the error of one that failed.

        Tasks, and what they share, can be pickled. Secrets are in what they share: tasks may be written to a
        disk on their way.
        """


class Threads:
    """Threads of this process."""

    def run(self, tasks: Sequence[Callable[[Shared], bytes]], shared: Shared) -> list[bytes]:
        """As many at once as there are threads."""
        with ThreadPoolExecutor(max(1, min(_THREADS, len(tasks)))) as pool:
            return [done.result() for done in [pool.submit(task, shared) for task in tasks]]


def temporary_folder() -> Path:
    """A new private folder."""
    return Path(mkdtemp(prefix="rollview-"))


@dataclass(frozen=True)
class SourceSettings:
    """One entry under `sources`: `options` are all its settings but `type`, as text.

    Paths are relative to `folder`, that of the project file. `workers` do large readings where several
    connections can share a snapshot. `new_folder` makes a private folder for large transactions.
    """

    name: str
    options: Mapping[str, str]
    folder: Path
    workers: Workers = field(default_factory=Threads)
    new_folder: Callable[[], Path] = temporary_folder

    def required(self, option: str, hint: str) -> str:
        """An option that must be there."""
        if not (value := self.options.get(option, "")):
            raise InputError(f"source `{self.name}` has no `{option}`", subject=self.name, hint=hint)
        return value

    def path(self) -> Path:
        """The option `path`, which must be there, made absolute."""
        place = self.required("path", "path: where its data is")
        if scheme := url_scheme(place):
            raise InputError(
                f"source `{self.name}`: `path` must be a path, and {scheme}: is not supported",
                subject=self.name,
                hint="name a local path, for example ./data, or one on a mounted file system",
            )
        return (self.folder / place).absolute()

    def place(self) -> Path | Bucket:
        """The option `path`, which may also be a prefix of a bucket: `s3://bucket/prefix`."""
        place = self.required("path", "path: where its data is")
        given = {name: value for name, value in self.options.items() if name in SETTINGS}
        if is_s3(place):
            return open_bucket(self.name, place, given, self.folder / LOCAL_PART / "sources" / self.name)
        if scheme := url_scheme(place):
            raise InputError(
                f"source `{self.name}`: `path` must be a folder or s3://BUCKET/PREFIX, and "
                f"{'this address' if scheme == 's3' else f'{scheme}:'} is not supported",
                subject=self.name,
                hint="name a local path, for example ./data or one on a mounted file system, or s3://data/shop",
            )
        if given:
            option = next(iter(given))
            raise OptionError(
                f"source {self.name}: {option} is for a path at s3://BUCKET/PREFIX, and this one is a folder",
                subject=f"{self.name}.{option}",
                hint=f"remove {', '.join(given)}, or correct `path`",
            )
        return self.path()

    def without_place(self) -> dict[str, str]:
        """All options but those of `place`."""
        return self.without("path", *SETTINGS)

    def without(self, *options: str) -> dict[str, str]:
        return {name: value for name, value in self.options.items() if name not in options}


def seconds_option(source: str, options: Mapping[str, str], default: float, option: str = "timeout") -> float:
    """An option that is a number of seconds above zero."""
    given = options.get(option)
    if given is None:
        return default
    seconds = number_of(str(given))
    if not seconds:
        message = f"source {source}: {option} is not a number of seconds: {given}"
        raise OptionError(message, subject=option, hint="for example 30 or 2.5")
    return seconds


# Options of sources that lie in files, as the project file has them: `key.orders: order_id`.


def check_options(source: str, options: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuses an option that nobody would look at; `key.` stands for all that begin so."""
    known = tuple(known)
    for name in options:
        if name not in known and not any(
            prefix.endswith(".") and name.startswith(prefix) for prefix in known
        ):
            shown = ", ".join(f"{each}TABLE" if each.endswith(".") else each for each in known)
            raise OptionError(
                f"source {source} has no option {name}", subject=f"{source}.{name}", hint=f"there are {shown}"
            )


def declared_key(
    source: str, table: str, options: Mapping[str, Any], columns: Iterable[str]
) -> tuple[str, ...]:
    """The key that `key.TABLE` declares, as a list or with commas; empty if there is none."""
    given = options.get(f"key.{table}", ())
    names = given.split(",") if isinstance(given, str) else given
    key = tuple(str(name).strip() for name in names)
    present = tuple(columns)
    for name in key:
        if name not in present:
            raise OptionError(
                f"the key of {source}.{table} names {name}, which is not one of its columns",
                subject=f"{source}.{table}",
                hint=f"its columns are {', '.join(present)}",
            )
    return key
