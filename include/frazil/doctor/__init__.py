"""Whether this machine and the services that the settings name are fit for the pipelines: small checks, each with what to do."""
