"""Lakemirror: a read-only copy of Iceberg tables that is always whole."""
