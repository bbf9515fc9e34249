"""The obvious Spark job: Kafka source, `from_json`, Iceberg's own writer. See `plain_side`."""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.types import StructType

from frazil.project import Project
from frazil.spark.submit.configuration import open_catalog


def rows(records: DataFrame, columns: StructType) -> DataFrame:
    """Values as the columns of the table."""
    return records.select(functions.from_json(functions.col("value").cast("string"), columns).alias("row")).select(
        "row.*"
    )


def main() -> None:
    """Land a topic from its beginning to its present end."""
    way, servers, topic, table, checkpoint = sys.argv[1:]
    project = Project.load()
    spark = SparkSession.builder.getOrCreate()
    open_catalog(spark, "lake", project.settings.catalogs["lake"])
    name = f"lake.{table}"
    columns = spark.table(name).schema
    source = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    if way == "batch":
        rows(spark.read.format("kafka").options(**source).load(), columns).writeTo(name).append()
        return
    stream = rows(spark.readStream.format("kafka").options(**source).load(), columns).writeStream.format("iceberg")
    stream.trigger(availableNow=True).option("checkpointLocation", checkpoint).toTable(name).awaitTermination()


if __name__ == "__main__":
    main()
