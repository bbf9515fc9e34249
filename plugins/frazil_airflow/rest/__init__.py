"""Kafka Connect's REST API over pipelines: for scripts, Terraform and consoles of people who come from there."""
