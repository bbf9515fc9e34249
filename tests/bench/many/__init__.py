"""Many pipelines in one deployment: see `python -m tests.bench.many --help`."""
