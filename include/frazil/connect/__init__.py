"""Configurations of Kafka Connect's Iceberg sink become pipelines and settings: plain data in, plain data and findings out."""
