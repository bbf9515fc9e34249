"""Entry points of commands and tasks: plan, ingest, session, dry run, apply, and proposals of pipeline files."""
