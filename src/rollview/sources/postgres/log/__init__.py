"""Capture from the log: the slot, its stream as pgoutput, transactions, and what the log does not say.

Uses the connections, positions and registration of `sources.postgres`.
Used by the source itself, and by `read` and `setup` for what they compare.
"""
