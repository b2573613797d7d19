"""`rollview.Project`: the Python API, and the one place that puts the parts together.

Uses every package below.
Used by `cli`, `web`, `monitoring` and `demo`.
"""
