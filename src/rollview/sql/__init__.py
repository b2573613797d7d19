"""Spark SQL as text: names, places, scalar expressions, and the constructs that are allowed (sqlglot)."""
