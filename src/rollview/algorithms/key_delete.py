"""key_delete: removes the view rows that carry the key of a deleted base row.

**Source.** zhuge1996 §5.2, the definition of key_delete. **Assumes** that the view keeps the key of every
relation (§5.1), which `admits` in the algorithms that use it makes sure of.
"""

from __future__ import annotations

from typing import TypeVar

from rollview.algebra.bag import Bag, keep
from rollview.algebra.expression import Column
from rollview.algebra.view import Block

B = TypeVar("B", bound=Bag)


def key_delete(block: Block, rows: B, position: int, deleted: B) -> B:
    """The rows of the view that do not stem from the deleted rows of one relation."""
    key = block.relations[position].key
    shown_as = {
        expression.name: name for name, expression in block.projection if isinstance(expression, Column)
    }
    deleted_keys = deleted.distinct(key)
    stem = rows.join(deleted_keys, [(shown_as[name], name) for name in key]).project(keep(rows.columns))
    return rows.plus(stem.negate()).net_effect()
