"""JSON values of declared columns: as blocks where that is exact, one by one elsewhere."""
