"""The tables of the literature, measured: levels, costs and the papers' counted claims, as a page.

May use: the simulator. Used by: `lab/commands`.
"""
