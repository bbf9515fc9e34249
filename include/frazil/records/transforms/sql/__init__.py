"""SQL expressions over decoded records, run by DuckDB within bounds."""
