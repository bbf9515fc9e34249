"""Avro values, many at once; what is suspect is read one by one."""
