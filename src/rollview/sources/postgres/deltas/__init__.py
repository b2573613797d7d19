"""Deltas that writers make at the server themselves (policies ipda and immediate).

Uses the structure and the installation plan of `sources.postgres`.
Used by the source itself.
"""
