"""Monitoring by machines: metrics, health, lineage; for `rollview run --metrics PORT`, or beside the page.

Uses `project` and `observe`; used by `cli` and `web`.
"""

from rollview.monitoring.lineage import following_lineage
from rollview.monitoring.monitor import Answer, Monitor, health, metrics_text, ready
from rollview.monitoring.server import serving

__all__ = ["Answer", "Monitor", "following_lineage", "health", "metrics_text", "ready", "serving"]
