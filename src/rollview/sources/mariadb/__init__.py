"""The MariaDB source: transactions from the row-based binary log, snapshots whose place in it is known."""

from rollview.sources.mariadb.source import MariaDBSource

__all__ = ["MariaDBSource"]
