"""TBLPROPERTIES of a view: read as text, with our own keys checked so that a typing error is not ignored."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from rollview.algebra.block import Block
from rollview.sql.place import DIALECT, did_you_mean, mistake, refusal

KEYS = (
    "policy",
    "consistency",
    "algorithm",
    "interval",
    "refresh",
    "on_loss",
    "verify",
    "schedule",
    "condense_after",
    "foreign_keys",
)
"""What may follow `rollview.`; `interval` may itself be followed by a relation."""

_PREFIX = "rollview."


def read_properties(create: exp.Create, blocks: Iterable[Block]) -> dict[str, str]:
    """The properties of CREATE MATERIALIZED VIEW; COMMENT is kept as the property `comment`."""
    relations = [relation for block in blocks for relation in block.relations]
    names = [relation.alias for relation in relations] + [relation.table.qualified for relation in relations]
    found: dict[str, str] = {}
    properties = create.args.get("properties")
    for node in properties.expressions if properties else ():
        if isinstance(node, exp.MaterializedProperty):
            continue
        if isinstance(node, exp.SchemaCommentProperty):
            key, value = "comment", node.this
        elif type(node) is exp.Property:
            key, value = _key(node.this), node.args["value"]
        else:
            raise refusal(node, f"{node.sql(dialect=DIALECT)} in CREATE MATERIALIZED VIEW")
        _check_key(node, key, names)
        if key in found:
            raise mistake(node, f"the property `{key}` is given twice", subject=key)
        if not isinstance(value, exp.Literal | exp.Boolean):
            message = f"the property `{key}` needs a constant"
            raise mistake(node, message, subject=key, hint="write it in quotes")
        found[key] = str(value.this).lower() if isinstance(value, exp.Boolean) else value.name
    return found


def _key(node: exp.Expr) -> str:
    """A key in quotes, or words with dots between them."""
    if isinstance(node, exp.Dot):
        return f"{_key(node.this)}.{_key(node.expression)}"
    return node.name


def _check_key(node: exp.Expr, key: str, names: list[str]) -> None:
    if not key.startswith(_PREFIX):
        return
    word = key.removeprefix(_PREFIX)
    if word.startswith("interval."):
        relation = word.removeprefix("interval.")
        if relation.lower() not in [name.lower() for name in names]:
            hint = did_you_mean(relation, names, otherwise=f"the view has {', '.join(names)}")
            raise mistake(node, f"the property `{key}` names no relation of the view", subject=key, hint=hint)
    elif word not in KEYS:
        known = [_PREFIX + name for name in KEYS]
        hint = did_you_mean(key, known, otherwise=f"known: {', '.join(known)}")
        raise mistake(node, f"unknown property `{key}`", subject=key, hint=hint)
