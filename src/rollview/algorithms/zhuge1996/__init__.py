"""zhuge1996: the Strobe family."""
