"""Kafka Connect's REST API over pipelines, for scripts, Terraform and consoles that were written for Kafka Connect."""
