"""An independent check of what landed: reads Kafka and the tables its own way, and compares every record."""
