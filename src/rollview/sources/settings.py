"""What a source is opened with: its entry in the project file, and what the service has to offer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rollview.errors import InputError
from rollview.sources.workers import Threads, Workers


@dataclass(frozen=True)
class SourceSettings:
    """One entry under `sources`: `options` are all its settings but `type`, as text.

    Paths are relative to `folder`, that of the project file. `workers` do large readings where several
    connections can share a snapshot.
    """

    name: str
    options: Mapping[str, str]
    folder: Path
    workers: Workers = field(default_factory=Threads)

    def required(self, option: str, hint: str) -> str:
        """An option that must be there."""
        if not (value := self.options.get(option, "")):
            raise InputError(f"source `{self.name}` has no `{option}`", subject=self.name, hint=hint)
        return value

    def path(self) -> Path:
        """The option `path`, which must be there, made absolute."""
        return (self.folder / self.required("path", "path: where its data is")).absolute()

    def without(self, *options: str) -> dict[str, str]:
        """All other options."""
        return {name: value for name, value in self.options.items() if name not in options}
