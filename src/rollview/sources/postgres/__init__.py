"""PostgreSQL: captured from its log by logical replication, asked at a snapshot that says what it saw."""

from rollview.sources.postgres.embedded.server import EmbeddedPostgres
from rollview.sources.postgres.source import PostgresSource

__all__ = ["EmbeddedPostgres", "PostgresSource"]
