"""Converts JSON values to declared columns: in blocks of many values where the outcome is surely the same, else one by one."""
