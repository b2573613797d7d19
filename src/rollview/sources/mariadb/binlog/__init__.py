"""Capture from the binary log: its events, rows, statements and transactions.

Uses the connection, types and registration of `sources.mariadb`.
Used by the source itself, and by `read` and `setup`.
"""
