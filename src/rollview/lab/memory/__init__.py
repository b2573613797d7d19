"""Bags in memory: rows as Python values, and the evaluator of expressions that needs no Arrow and no Spark.

Lives here: the bag, the functions that expressions may call (Spark SQL's meaning with ANSI mode on: NULL in
is NULL out, except where a function is about NULL), the history, the oracle that computes views from scratch.
May use: `algebra`. Used by: the simulator, and tests that compare it with Spark and DuckDB.
"""
