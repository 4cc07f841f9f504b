"""What a person or a task asks for, put together from the parts: mirror a table, follow it, tell where it stands."""
