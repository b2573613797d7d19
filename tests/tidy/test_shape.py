"""The shape of the repository: what a reader would trip over is a failing test."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from live_names import unused_names

import rollview
import rollview.operators.registry
from rollview.algebra.node import Node

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
LISTED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
TRACKED = [ROOT / name for name in LISTED.splitlines() if (ROOT / name).is_file()]
TEXTS = [
    file for file in TRACKED if file.suffix in {".py", ".md", ".toml", ".txt", ".sql", ".yml", ".json", ""}
]


# Public names that nothing in src uses, each with the reason why it stays.
UNUSED = {
    "rollview.algebra.history.seen_of": "the inverse of Seen, by which laws and fakes state what was visible",
    "rollview.operators.registry.added": "how an operator from outside is added",
}


NODES = {"Block", "Node", *(each.__name__ for each in Node.__subclasses__())}
"""The classes of nodes; importing the operators makes them known."""


def _name(file: Path) -> str:
    return str(file.relative_to(ROOT))


@pytest.mark.parametrize("file", SOURCES, ids=_name)
def test_everything_public_says_what_it_is_for(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "the module has no docstring"
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        assert node.name.startswith("_") or ast.get_docstring(node), f"{node.name} has no docstring"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{node.name} has no docstring"


@pytest.mark.parametrize("file", SOURCES, ids=_name)
def test_files_are_not_huge_and_are_well_named(file: Path) -> None:
    # A file that has one reason to exist may be long; one as long as this has several.
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 450
    assert file.stem not in {"utils", "util", "common", "helpers", "helper", "base", "misc"}
    assert not re.search(r"\d$", file.stem)


def test_nothing_is_left_for_later() -> None:
    marks = re.compile("|".join(["FIX" + "ME", "TO" + "DO", "XX" + "X", "HA" + "CK"]))
    found = [_name(file) for file in TEXTS if file.suffix == ".py" and marks.search(file.read_text("utf-8"))]
    assert found == []


def test_no_module_is_dead() -> None:
    """Every module is imported by another one, or is an entry point. One that only tests reach is dead."""
    entries = {"rollview.simulator.soak", "rollview.simulator.bench"}
    imported: set[str] = set()
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module)
                imported.update(f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Constant) and str(node.value).startswith("rollview."):
                # Commands and drivers are loaded by name when they are first needed.
                imported.add(str(node.value).partition(":")[0])
    modules = {
        ".".join(file.relative_to(ROOT / "src").with_suffix("").parts)
        for file in SOURCES
        if file.stem != "__init__"
    }
    assert modules - imported - entries == set()


def test_no_public_name_is_dead() -> None:
    """Every public function, class and constant is used by the product; one that only tests use is dead."""
    unused = unused_names(ROOT / "src", {("rollview.cli", "main")})
    # The suite of a source's contract is for other packages.
    ours = [each for each in unused if not each[0].startswith("rollview.testing")]
    assert {f"{module}.{name}" for module, name in ours} == set(UNUSED)


def test_nodes_are_asked_and_not_told_apart() -> None:
    """An operator is one module: nothing else looks at what kind of node it has."""
    told = []
    for file in SOURCES:
        if "operators" in file.parts:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                classes = {each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)}
                if classes & NODES:
                    told.append(f"{_name(file)}:{node.lineno}")
            elif isinstance(node, ast.MatchClass) and getattr(node.cls, "id", "") in NODES:
                told.append(f"{_name(file)}:{node.lineno}")
    assert told == []


def test_the_public_surface_is_pinned() -> None:
    assert sorted(rollview.__all__) == ["Project", "RollviewError", "__version__", "errors"]


def test_every_dependency_earns_its_line() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = [each for named in project["optional-dependencies"].values() for each in named]
    named = [*project["dependencies"], *(each for each in optional if not each.startswith("rollview["))]
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    missing = [name for entry in named if (name := re.split(r"[<>=~!\[]", entry)[0]) not in text]
    assert missing == []


def test_constraints_pin_every_dependency_and_name_no_host() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert "://" not in text
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[^\s]+", line) for line in text.splitlines() if line)
