"""Checks of this machine, of the services that the settings name, and of pipelines. Each finding has its next step."""
