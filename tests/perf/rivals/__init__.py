"""Side by side with Iceberg's own `rewrite_table_path`: the same table, the same machine, one run."""
