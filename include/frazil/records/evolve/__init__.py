"""What records need that their tables do not have: changes of schemas that are asked for before the data is written."""
