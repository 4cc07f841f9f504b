"""Fixtures over the services profile (`dev.services`)."""
