"""The specification of a Spark Declarative Pipeline (`spark-pipeline.yml`): its files are a project's views.

The format, and which patterns of files there may be, are those of `pyspark.pipelines.cli`.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollview.config.files import read_text
from rollview.config.yaml_file import YamlFile
from rollview.errors import ProjectError

_KEYS = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")


@dataclass(frozen=True)
class PipelineSpec:
    """A pipeline: names in its files mean things of its catalog and database, if they say no other.

    `storage` is not kept: it is for checkpoints of streams, and views have none.
    """

    path: Path
    name: str
    libraries: tuple[str, ...]
    catalog: str = ""
    database: str = ""
    # Not shown: settings may have secrets.
    configuration: Mapping[str, str] = field(default_factory=dict, repr=False)

    def files(self) -> tuple[Path, ...]:
        """The SQL files, in order of their names for each entry of `libraries`."""
        found: dict[Path, None] = {}
        for pattern in self.libraries:
            paths = sorted(path for path in self.path.parent.glob(pattern) if path.is_file())
            for path in paths:
                if "__pycache__" not in path.parts:
                    self._check_kind(path)
                    found[path] = None
        return tuple(found)

    def _check_kind(self, path: Path) -> None:
        shown = path.relative_to(self.path.parent)
        if path.suffix == ".py":
            hint = "write its views in SQL, or name the SQL files alone in `libraries`"
            raise ProjectError(f"{self.path.name}: {shown} is Python", subject=str(shown), hint=hint)
        if path.suffix != ".sql":
            hint = "files of a pipeline end with .sql"
            raise ProjectError(f"{self.path.name}: {shown} is not SQL", subject=str(shown), hint=hint)


def read_pipeline_spec(path: Path) -> PipelineSpec:
    """Reads and checks a specification."""
    return _Reading(path.absolute(), read_text(path)).spec()


class _Reading(YamlFile):
    def spec(self) -> PipelineSpec:
        content = self.content()
        if not isinstance(content, dict):
            raise self.fail("the file must be a mapping of settings", "", f"known: {', '.join(_KEYS)}")
        self.only(content, _KEYS, "field of a pipeline")
        for key in ("name", "storage"):
            if key not in content:
                raise self.fail(f"`{key}` is missing", "", "Spark asks for `name` and `storage`")
        self._text_at(content, "storage")
        if "database" in content and "schema" in content:
            raise self.fail("`database` and `schema` are the same", "schema", "keep one of them")
        return PipelineSpec(
            self.path,
            self._text_at(content, "name"),
            self._libraries(content.get("libraries", [])),
            self._text_at(content, "catalog"),
            self._text_at(content, "database") or self._text_at(content, "schema"),
            self._configuration(content.get("configuration", {})),
        )

    def _text_at(self, content: Mapping[str, Any], key: str) -> str:
        value = content.get(key)
        if value is not None and (not isinstance(value, str) or not value):
            raise self.fail(f"`{key}` must be text", key)
        return value or ""

    def _configuration(self, value: Any) -> dict[str, str]:
        if not isinstance(value, dict):
            raise self.fail("`configuration` must be a mapping", "configuration")
        for key, each in value.items():
            if not isinstance(key, str) or not isinstance(each, str):
                raise self.fail(f"`{key}` in `configuration` must be text", str(key), "write it in quotes")
            if not key.startswith("spark."):
                message = f"`{key}` in `configuration` is not a setting of Spark, and SQL cannot read it"
                raise self.fail(message, key, "leave it out")
        return dict(value)

    def _libraries(self, value: Any) -> tuple[str, ...]:
        example = "for example libraries: [{glob: {include: transformations/**}}]"
        if not isinstance(value, list):
            raise self.fail("`libraries` must be a list", "libraries", example)
        return tuple(self._pattern(entry, example) for entry in value)

    def _pattern(self, entry: Any, example: str) -> str:
        inside = entry.get("glob") if isinstance(entry, dict) else None
        pattern = inside.get("include") if isinstance(inside, dict) else None
        if not isinstance(pattern, str) or set(entry) != {"glob"} or set(inside or ()) != {"include"}:
            raise self.fail("an entry of `libraries` is a glob with include", "libraries", example)
        folder = pattern.removesuffix("/**")
        parts = Path(pattern).parts
        if glob.has_magic(folder) or not parts or Path(pattern).is_absolute() or ".." in parts:
            hint = "a path below the folder of the file, or a folder with /** behind it"
            raise self.fail(f"`{pattern}` is not a pattern of a pipeline", pattern, hint)
        return pattern if folder == pattern else f"{pattern}/*"
