"""Change events become rows to merge, by the key of the table. Pure Arrow."""
