"""The edge to Iceberg, and the only room that imports PyIceberg: catalog, tables, data files, positioned commits."""
