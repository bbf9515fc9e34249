"""Everything that runs in Spark, and the only room that imports pyspark. Spark Connect-safe APIs only in the batch path."""
