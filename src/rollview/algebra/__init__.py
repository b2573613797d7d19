"""The algebra: bags, histories, views, and the operators on them.

Lives here: what algorithms compute with, and the laws they rely on. Values may be dates; no clock is read.
May use: the standard library alone. Used by: every package that knows of views, and `sources` for its types.
"""
