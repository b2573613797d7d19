"""Which names of a package are used: reachable from what runs when its modules are imported or started.

A module's own statements are where everything begins; from there a definition is reached by its name, by an
import, by a module's attribute, or by a text such as "package.module:name". A re-export in an `__init__.py`
uses nothing on its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

Name = tuple[str, str]
"""A module and a name at its top level."""

_PLAIN_DECORATORS = {
    "cache",
    "lru_cache",
    "contextmanager",
    "dataclass",
    "total_ordering",
    "runtime_checkable",
}
"""Others may hand a function to somebody who calls it."""
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass
class Module:
    """A module's definitions, each with what it refers to; "" stands for the module's own statements."""

    name: str
    imports: dict[str, Name] = field(default_factory=dict)
    references: dict[str, set[Name]] = field(default_factory=dict)


def unused_names(sources: Path, roots: set[Name]) -> set[Name]:
    """Public names at the top level of modules that nothing in `sources` uses, nor the roots."""
    modules = {module.name: module for module in map(_read, *_files(sources))}
    reached: set[Name] = set()
    waiting = [*roots, *((name, "") for name in modules)]
    while waiting:
        name = _resolved(waiting.pop(), modules)
        if name is not None and name not in reached:
            reached.add(name)
            waiting.extend(modules[name[0]].references[name[1]])
    known = {(module.name, name) for module in modules.values() for name in module.references if name}
    return {name for name in known - reached if not name[1].startswith("_")}


def _files(sources: Path) -> tuple[list[Path], list[str]]:
    files = sorted(sources.rglob("*.py"))
    parts = [file.relative_to(sources).with_suffix("").parts for file in files]
    return files, [".".join(each[:-1] if each[-1] == "__init__" else each) for each in parts]


def _resolved(name: Name, modules: dict[str, Module]) -> Name | None:
    """The definition behind a name, through any number of re-exports."""
    while name[0] in modules:
        module = modules[name[0]]
        if name[1] in module.references:
            return name
        if name[1] not in module.imports:
            return None
        name = module.imports[name[1]]
    return None


def _read(file: Path, name: str) -> Module:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    module = Module(name, references={"": set()})
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            module.imports |= {each.asname or each.name: (node.module, each.name) for each in node.names}
    statements = [each for each in tree.body if not isinstance(each, ast.Import | ast.ImportFrom)]
    for statement in statements:
        for defined in _defined(statement):
            module.references[defined] = set()
    for statement in statements:
        used = set(_used(statement, module))
        names = _defined(statement)
        for defined in names:
            module.references[defined] |= used
        if not names or _is_handed_over(statement):
            module.references[""] |= used
            module.references[""] |= {(name, defined) for defined in names}
    return module


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, _DEFINITIONS):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    names = [each.id for each in targets if isinstance(each, ast.Name)]
    return [each for each in names if not (each.startswith("__") and each.endswith("__"))]


def _is_handed_over(statement: ast.stmt) -> bool:
    decorators = statement.decorator_list if isinstance(statement, _DEFINITIONS) else []
    called = [each.func if isinstance(each, ast.Call) else each for each in decorators]
    return any(ast.unparse(each).rpartition(".")[2] not in _PLAIN_DECORATORS for each in called)


def _used(statement: ast.stmt, module: Module) -> Iterator[Name]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield module.imports.get(node.id, (module.name, node.id))
        elif isinstance(node, ast.Attribute):
            # `module.name`, and `import_module("module").name`.
            if isinstance(node.value, ast.Name) and node.value.id in module.imports:
                yield ".".join(module.imports[node.value.id]), node.attr
            for text in _texts(node.value):
                yield text, node.attr
        elif isinstance(node, ast.Tuple) and len(texts := list(_texts(*node.elts))) == 2:
            yield texts[0], texts[1]
        for text in _texts(node):
            # `module:Class.method` uses the class.
            yield text.partition(":")[0], text.partition(":")[2].partition(".")[0]


def _texts(*nodes: ast.AST) -> Iterator[str]:
    for node in nodes:
        inner = node.args if isinstance(node, ast.Call) else [node]
        for each in inner:
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield each.value
