"""Objects that setup creates at a PostgreSQL: publication, functions, parts of global transactions.

Uses the registration, structure and log of `sources.postgres`.
Used by the source itself, and by `deltas` for the plan.
"""
