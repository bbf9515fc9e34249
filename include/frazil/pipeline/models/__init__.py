"""The pipeline file as a model. Begin with `pipeline_file`."""
