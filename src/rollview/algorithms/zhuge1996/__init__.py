"""zhuge1996: the Strobe family.

Lives here: Strobe, T-Strobe, C-Strobe and their global variants, with the action and update lists they share.
May use: `algebra` and the steps that algorithms share. Used by: `registry`.
"""
