"""Queries and rows at any csn, for commands, pages and programs: planned, computed apart from maintenance.

Uses `observe`, `upkeep` and what is below.
Used by `project`, `cli` and `web`.
"""
