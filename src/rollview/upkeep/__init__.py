"""Care of a project: verify, compact and prune, condense, back up, consumers, register.

Uses `maintain` and what is below.
Used by `run`, `observe`, `answer` and `project`.
"""
