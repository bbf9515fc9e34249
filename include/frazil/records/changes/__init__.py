"""Changes: records that tell of inserts, updates and deletes become rows to merge, by the key of the table. Pure Arrow."""
