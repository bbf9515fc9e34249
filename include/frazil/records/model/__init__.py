"""The words of this room as plain data: records as Arrow, columns, formats, changes, dead letters, and what a pipeline asks for."""
