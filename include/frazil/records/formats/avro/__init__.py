"""Avro values, read in blocks; suspect values are read one by one."""
