"""A file of settings in YAML; mistakes in it are reported with their lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from rollview.errors import ProjectError

_MOST_NESTED = 50
_MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """Refuses what YAML forbids and its library takes: a setting that is there twice; the last would win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        known = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                if key.value in known:
                    problem = f"`{key.value}` is set twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                known.add(key.value)
        return super().construct_mapping(node, deep)


def _depth(text: str) -> int:
    """How deeply collections are nested, up to one more than is allowed: more is not looked at."""
    depth = most = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        most = max(most, depth)
        if most > _MOST_NESTED:
            break
    return most


class YamlFile:
    """Knows the text, so that a mistake can be shown with its line."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.lines = text.splitlines()
        self._text = text

    def content(self) -> Any:
        """What the file says, before anything of it is checked."""
        try:
            if _depth(self._text) > _MOST_NESTED:
                raise ProjectError(f"{self.path.name} is nested too deeply", subject=str(self.path))
            return yaml.load(self._text, _Loader)
        except yaml.YAMLError as error:
            place = getattr(error, "problem_mark", None)
            where = f" (line {place.line + 1}, column {place.column + 1})" if place else ""
            problem = getattr(error, "problem", None) or "it is not YAML"
            raise ProjectError(f"{self.path.name}: {problem}{where}", subject=str(self.path)) from None

    def fail(self, message: str, subject: str, hint: str = "") -> ProjectError:
        pattern = re.compile(rf"^\s*[\"']?{re.escape(subject)}[\"']?\s*:|{re.escape(subject)}")
        line = next((number for number, each in enumerate(self.lines, 1) if pattern.search(each)), None)
        where = f" (line {line})" if line and subject else ""
        return ProjectError(f"{self.path.name}{where}: {message}", subject=subject, hint=hint)

    def only(self, content: Mapping[Any, Any], known: tuple[str, ...], what: str) -> None:
        """Refuses keys that are not known."""
        for key in content:
            if key not in known:
                close = get_close_matches(str(key), known, 1)
                hint = f"did you mean `{close[0]}`?" if close else f"known: {', '.join(known)}"
                raise self.fail(f"unknown {what} `{key}`", str(key), hint)
