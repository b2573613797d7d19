"""`rollview demo` and `rollview init`: a small project, programs that write to it, a script.

Uses `project` and an embedded PostgreSQL.
Used by `cli`.
"""
