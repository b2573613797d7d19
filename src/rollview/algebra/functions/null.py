"""NULL in, NULL out: what nearly every function does with NULL, said once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Value = Any


def strict(function: Callable[..., Value]) -> Callable[..., Value]:
    """NULL in, NULL out."""

    def applied(*values: Value) -> Value:
        return None if None in values else function(*values)

    return applied


def strict_single(function: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """The same for one argument."""

    def applied(value: Value) -> Value:
        return None if value is None else function(value)

    return applied


def strict_pair(function: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    """The same for two arguments, which is what comparisons in joins spend their time on."""

    def applied(left: Value, right: Value) -> Value:
        return None if left is None or right is None else function(left, right)

    return applied
