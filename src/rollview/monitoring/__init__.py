"""How machines watch rollview: metrics, health, lineage; for `rollview run --metrics PORT`, or for a page."""

from rollview.monitoring.lineage import following_lineage
from rollview.monitoring.monitor import Answer, Monitor, health, metrics_text, ready
from rollview.monitoring.server import serving

__all__ = ["Answer", "Monitor", "following_lineage", "health", "metrics_text", "ready", "serving"]
