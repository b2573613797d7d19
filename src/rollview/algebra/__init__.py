"""The algebra: bags, histories, views, and the operators on them. Standard library alone."""
