"""The shape of the repository: what a reader would trip over is a failing test."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
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


FOR_PEOPLE = {
    "cli/explain.py",
    "cli/failures.py",
    "cli/project_context.py",
    "demo/demo_script.py",
    "monitoring/collector.py",
    "views/view_files.py",
    "runtime/session.py",
    "observe/observer.py",
    "config/yaml_file.py",
    "observe/status.py",
    "views/content.py",
    "secrets.py",
    "spark/data_errors.py",
    "sources/postgres/embedded/server.py",
    "web/rendering.py",
}
"""Where lines are those of messages, or of a file that a program has written in ASCII."""

TOKENS = {
    "operators/aggregate.py",
    "sql/cast.py",
    "sql/passes/layers.py",
    "sql/passes/row_number_bounds.py",
    "sql/passes/values.py",
    "sql/scalar.py",
}
"""Where digits are those of a number in SQL, which the tokenizer has found to be one."""


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
def test_texts_reach_spark_through_the_gate_alone(file: Path) -> None:
    """`spark.sql(…)`, `expr(…)` and `selectExpr(…)` are in one module; demo and docs use constants."""
    if file.relative_to(ROOT / "src/rollview").parts[0] == "demo" or file.match("spark/gate.py"):
        return
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Attribute):
            continue
        of = ast.unparse(node.value)
        is_text = node.attr == "sql" and ("spark" in of or "session" in of) and not of.startswith("spark_")
        is_text |= node.attr == "selectExpr" or (node.attr == "expr" and of == "f")
        assert not is_text, f"line {node.lineno}"


@pytest.mark.parametrize("file", SOURCES, ids=_name)
def test_files_are_well_named(file: Path) -> None:
    assert file.stem not in {"utils", "util", "common", "helpers", "helper", "base", "misc"}
    assert not re.search(r"\d$", file.stem)


def test_nothing_is_left_for_later() -> None:
    marks = re.compile("|".join(["FIX" + "ME", "TO" + "DO", "XX" + "X", "HA" + "CK"]))
    found = [_name(file) for file in TEXTS if file.suffix == ".py" and marks.search(file.read_text("utf-8"))]
    assert found == []


def test_no_module_is_dead() -> None:
    """Every module is imported by another one, or is an entry point. One that only tests reach is dead."""
    entries = {"rollview.lab.soak"}
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


def test_nodes_are_asked_and_not_matched_by_class() -> None:
    """An operator is one module: nothing else looks at what kind of node it has."""
    found = []
    for file in SOURCES:
        if "operators" in file.parts:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                classes = {each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)}
                if classes & NODES:
                    found.append(f"{_name(file)}:{node.lineno}")
            elif isinstance(node, ast.MatchClass) and getattr(node.cls, "id", "") in NODES:
                found.append(f"{_name(file)}:{node.lineno}")
    assert found == []


def test_opening_a_project_imports_no_spark() -> None:
    """PySpark takes longer to import than most answers take to give."""
    code = "import sys, rollview.cli, rollview.project.project; print('pyspark' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT).strip() == "False"


def test_the_public_surface_is_pinned() -> None:
    assert sorted(rollview.__all__) == ["Project", "RollviewError", "__version__", "errors"]


def test_every_dependency_earns_its_line() -> None:
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = content["project"]
    optional = [*project["optional-dependencies"].values(), *content["dependency-groups"].values()]
    others = [each for named in optional for each in named if isinstance(each, str)]
    named = [*project["dependencies"], *(each for each in others if not each.startswith("rollview["))]
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    missing = [name for entry in named if (name := re.split(r"[<>=~!\[]", entry)[0]) not in text]
    assert missing == []


def test_constraints_pin_every_dependency_and_name_no_host() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert "://" not in text
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[^\s]+", line) for line in text.splitlines() if line)


@pytest.mark.parametrize("file", SOURCES, ids=_name)
def test_formats_are_read_as_ascii(file: Path) -> None:
    """Lines, digits and numbers of formats are those of `rollview.ascii_text`, not Python's by Unicode."""
    text, place = file.read_text(encoding="utf-8"), str(file.relative_to(ROOT / "src/rollview"))
    assert place in FOR_PEOPLE or ".splitlines(" not in text
    by_unicode = re.search(r"\.is(digit|decimal|numeric)\(", text)
    # The page reads numbers of addresses of its own.
    assert place in TOKENS or place.startswith("web/") or not by_unicode
