"""Catalogs and tables as they are opened: SQLite, PostgreSQL, REST, and what a table may do in this process."""
