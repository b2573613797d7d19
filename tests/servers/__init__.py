"""Real database servers for tests, started and stopped by the tests themselves."""
