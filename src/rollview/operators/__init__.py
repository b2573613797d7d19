"""Operators, one module each: its form in SQL, what it stores, and how a delta passes through it.

A new operator is one module with one class, listed in `registry`: a `Node` (`rollview.algebra.node`) that
also says which SQL is its own (`rollview.operators.translation.Operator`).
"""

from rollview.operators.aggregate import Aggregate
from rollview.operators.registry import OPERATORS
from rollview.operators.union_all import UnionAll

__all__ = ["OPERATORS", "Aggregate", "UnionAll"]
