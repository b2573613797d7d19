"""The requirements of setup at a MariaDB, and the objects that it creates there.

Uses the structure, registration and binary log of `sources.mariadb`.
Used by the source itself.
"""
