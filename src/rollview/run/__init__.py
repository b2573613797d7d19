"""`rollview run`: rounds of capture, propagate and apply by the policy of each view, and maintenance.

Uses `setup`, `upkeep` and what is below.
Used by `project`.
"""
