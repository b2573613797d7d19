"""rollview: materialized views on Apache Spark that stay true to databases we do not own."""

from rollview.errors import RollviewError

__version__ = "0.1.0"
__all__ = ["RollviewError", "__version__"]
