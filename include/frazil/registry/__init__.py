"""Everything that talks to a Schema Registry."""
