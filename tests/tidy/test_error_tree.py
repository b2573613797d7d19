"""One tree of errors, in one module, and what its docstring and its page in the docs say about it is true."""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import rollview.errors
from rollview.errors import InputError, RollviewError

ROOT = Path(__file__).parents[2]
TREE = ROOT / "src" / "rollview" / "errors.py"
PAGE = ROOT / "docs" / "reference" / "errors.md"

CONTROL_FLOW = {
    "NotAlike": "becomes the reason for which setup refuses a view",
    "NodeError": "carries a ViewError and its node to where the SQL text is known",
    "UnknownImage": "becomes LogLost where the position in the binary log is known",
    "ValueNotLogged": "becomes a loss where the table is known",
    "WarehouseCrash": "a crash that the simulator injects and catches itself",
}
"""Exceptions outside the tree that never reach a user, and why they exist."""

ERRORS = [each for each in vars(rollview.errors).values() if isinstance(each, type)]
ERRORS = [each for each in ERRORS if issubclass(each, RollviewError)]


def _children(parent: type[RollviewError]) -> list[type[RollviewError]]:
    """The classes whose first base is this one, in the order of the module."""
    return [each for each in ERRORS if each.__bases__[0] is parent]


def _preorder(error: type[RollviewError]) -> Iterator[type[RollviewError]]:
    yield error
    for child in _children(error):
        yield from _preorder(child)


def _lines(error: type[RollviewError], depth: int = 0) -> Iterator[str]:
    others = [base.__name__ for base in error.__bases__[1:]]
    shown = error.__name__ + (f" ({', '.join(others)})" if others else "")
    yield shown if depth == 0 else " " * (4 * depth - 2) + f"+ {shown}"
    for child in _children(error):
        yield from _lines(child, depth + 1)


def test_the_docstring_shows_the_whole_tree() -> None:
    text = str(rollview.errors.__doc__)
    shown = re.findall(r"^RollviewError$|^ +\+ .*$", text, re.MULTILINE)
    assert shown == list(_lines(RollviewError))


def test_classes_stand_in_the_order_of_the_tree() -> None:
    assert list(_preorder(RollviewError)) == ERRORS


def _exception_names() -> dict[str, list[Path]]:
    """The files that define a class which is an exception, by the class's name."""
    bases: dict[str, set[str]] = {}
    places: dict[str, list[Path]] = {}
    for file in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                names = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
                bases.setdefault(node.name, set()).update(names)
                places.setdefault(node.name, []).append(file)
    known = {name for name, value in vars(__import__("builtins")).items() if _is_exception(value)}
    found: set[str] = set()
    while grown := {name for name, above in bases.items() if above & (known | found)} - found:
        found |= grown
    return {name: places[name] for name in found}


def _is_exception(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def test_every_error_is_defined_once_and_in_the_tree() -> None:
    found = _exception_names()
    assert {each.__name__ for each in ERRORS} <= found.keys()
    outside = {
        name: files
        for name, files in found.items()
        if files != [TREE] and not name.startswith("_") and name not in CONTROL_FLOW
    }
    assert outside == {}


def test_the_list_of_exceptions_outside_the_tree_is_current() -> None:
    found = _exception_names()
    assert [name for name in CONTROL_FLOW if found.get(name, [TREE]) == [TREE]] == []


def test_no_error_is_named_in_two_forms() -> None:
    names = {each.__name__ for each in ERRORS}
    assert [name for name in names if f"{name}Error" in names] == []


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_is_made_alike_and_survives_the_way_from_a_worker(error: type[RollviewError]) -> None:
    made = error("the reason", subject="the subject", hint="the way out")
    back = pickle.loads(pickle.dumps(made))
    assert type(back) is error
    assert (back.message, back.subject, back.hint) == ("the reason", "the subject", "the way out")


def _row(error: type[RollviewError]) -> str:
    bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__ if base is not Exception)
    code = 2 if issubclass(error, InputError) else 1
    retried = "yes" if error.retryable else "no"
    meaning = str(error.__doc__).splitlines()[0]
    return f"| `{error.__name__}` | {bases} | {code} | {retried} | {meaning} |"


def test_the_page_of_errors_is_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert rows == [_row(error) for error in ERRORS]
