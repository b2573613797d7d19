"""sze2000: view maintenance with version numbers."""
