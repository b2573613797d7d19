"""How machines watch rollview: metrics, health, lineage. Served by `rollview run --metrics PORT`, or by a page."""

from rollview.monitoring.monitor import Answer, Monitor, health, metrics_text, ready
from rollview.monitoring.server import serving

__all__ = ["Answer", "Monitor", "health", "metrics_text", "ready", "serving"]
