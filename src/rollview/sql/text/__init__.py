"""Checks and changes of a query's text as it is written: the user's own words reach Spark.

It uses the parser's tokens, and names where it completes an order; `spark`, `answer` and `planning` use it.
"""
