"""Look-ups and loads at a snapshot whose place in the log is known.

Uses the connection, types and binary log of `sources.mariadb`.
Used by the source itself.
"""
