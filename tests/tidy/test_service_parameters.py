"""The drivers hand out small parts: nothing but the composition root takes the whole warehouse."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROLLVIEW = Path(__file__).parents[2] / "src" / "rollview"
ROOMS = [
    "config",
    "runtime",
    "views",
    "storage",
    "maintain",
    "setup",
    "upkeep",
    "run",
    "observe",
    "answer",
    "project",
]
MOST_PARAMETERS = 6
"""Beside `self`."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(file for room in ROOMS for file in (ROLLVIEW / room).glob("[!_]*.py")):
        yield file.stem, ast.parse(file.read_text(encoding="utf-8"))


def _parameters(function: Function) -> list[ast.arg]:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [each for each in named if each.arg not in ("self", "cls")]


def _names(annotation: ast.expr | None) -> set[str]:
    if annotation is None:
        return set()
    return {each.id for each in ast.walk(annotation) if isinstance(each, ast.Name)}


def _takers(tree: ast.AST) -> list[str]:
    """Functions with a parameter, and classes with a field, that is a warehouse."""
    takers = []
    for node in ast.walk(tree):
        if isinstance(node, Function):
            annotations = [each.annotation for each in _parameters(node)]
        elif isinstance(node, ast.ClassDef):
            annotations = [each.annotation for each in node.body if isinstance(each, ast.AnnAssign)]
        else:
            continue
        if any("Warehouse" in _names(each) for each in annotations):
            takers.append(node.name)
    return takers


def _too_long(tree: ast.AST) -> list[str]:
    """Functions with many parameters."""
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    return [each.name for each in functions if len(_parameters(each)) > MOST_PARAMETERS]


def test_only_the_composition_root_takes_the_warehouse() -> None:
    takers = [f"{name}.{taker}" for name, tree in _trees() for taker in _takers(tree)]
    assert takers == ["drivers.__init__", "project.__init__"]


def test_nothing_in_the_service_layer_takes_more_than_six_parameters() -> None:
    assert [f"{name}.{each}" for name, tree in _trees() for each in _too_long(tree)] == []


def test_takers_and_long_lists_are_found() -> None:
    """The checks above see a warehouse that comes in any of the ways there are."""
    tree = ast.parse(
        "def one(x: int, *, house: Warehouse | None): ...\n"
        "class Two:\n    house: Warehouse\n    def three(self, house: list[Warehouse]): ...\n"
        "def long(a, b, c, d, e, f, g): ...\n"
    )
    assert sorted(_takers(tree)) == ["Two", "one", "three"]
    assert sorted(_too_long(tree)) == ["long"]
