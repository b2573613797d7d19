"""The service layer hands out small parts: nothing but the composition root takes the whole warehouse."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SERVICE = Path(__file__).parents[2] / "src" / "rollview" / "service"
MOST_PARAMETERS = 6
"""Beside `self`; the fields of a dataclass of parts count as its parameters."""

PARTS = {"Catalog", "LakeTables", "Views", "Sites", "Session", "Events"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(SERVICE.glob("*.py")):
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
    """Functions with many parameters, and classes made of many parts."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, Function) and len(_parameters(node)) > MOST_PARAMETERS:
            found.append(node.name)
        elif isinstance(node, ast.ClassDef):
            fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
            if len(fields) > MOST_PARAMETERS and any(_names(each.annotation) & PARTS for each in fields):
                found.append(node.name)
    return found


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
        "class Parts:\n    a: Catalog\n" + "".join(f"    {name}: int\n" for name in "bcdefg")
    )
    assert sorted(_takers(tree)) == ["Two", "one", "three"]
    assert sorted(_too_long(tree)) == ["Parts", "long"]
