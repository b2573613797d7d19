"""The PostgreSQL source: the server's own log tells what was committed, its snapshots tell what was seen."""

from rollview.sources.postgres.embedded import EmbeddedPostgres
from rollview.sources.postgres.source import PostgresSource

__all__ = ["EmbeddedPostgres", "PostgresSource"]
