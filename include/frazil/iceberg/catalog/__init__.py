"""Opens catalogs (SQL databases, REST servers, Hive, Glue) and tables, and bounds what a table's properties may do in this process."""
