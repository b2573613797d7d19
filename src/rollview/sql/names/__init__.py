"""The meaning of names in a query: its tables and columns, the names that WITH gives, the columns of
generators.

It uses the tables that it is given, and syntax trees; passes, scalar expressions and operators use it.
"""
