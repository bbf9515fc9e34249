"""What records need that their tables do not have: changes of schemas, asked for before data is written."""
