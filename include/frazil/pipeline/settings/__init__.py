"""The settings file and the capture files as models."""
