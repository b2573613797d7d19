"""Look-ups and loads at a snapshot that says what it saw.

Uses the connections, structure and log of `sources.postgres`.
Used by the source itself.
"""
