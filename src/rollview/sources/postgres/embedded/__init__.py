"""A PostgreSQL of our own, for first projects and the demo.

Uses `errors` and the optional binaries of the extra `demo`.
Used by the source whose address is a folder, and by `demo`.
"""
