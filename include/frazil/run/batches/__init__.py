"""What commands and tasks call: plan, ingest, session, dry run, and the result of a run."""
