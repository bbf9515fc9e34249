"""The driver of a run on a Spark Connect server, forked while the run is planned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import frazil

if TYPE_CHECKING:
    from frazil.pipeline.models.pipeline_file import Pipeline
    from frazil.project import Project


@contextmanager
def warm_driver(project: Project, pipeline: Pipeline) -> Iterator[None]:
    """Fork the driver early if the engine is a Spark Connect server: a driver's start takes longer than a small batch."""
    from frazil.runtime import spark_server

    engine, sources = project.settings.engines.get(pipeline.engine), project.root / "include" / "frazil"
    # A driver must run the Frazil of its project, as the server does. The command's own Frazil may be another one.
    is_foreign = sources.is_dir() and not sources.samefile(frazil.__path__[0])
    # If its server is not up, a managed engine starts a Spark by itself, and the driver would wait for nothing.
    is_warm = (
        engine is not None
        and engine.type == "connect"
        and (not engine.managed or spark_server.is_started(project.home))
    )
    if is_foreign or not is_warm:
        yield
        return
    from frazil.run.batches import session  # noqa: F401 - imported before the fork, for the driver
    from frazil.spark.submit.job_process import forked_driver

    for catalog in pipeline.catalogs:
        project.lake(catalog).import_client()
    with forked_driver(_import_client):
        yield


def _import_client() -> None:
    """Import in the driver what only it needs, while the command plans the run."""
    from frazil.spark.jobs.start import start

    start()  # before other imports, which it prepares
    from frazil.spark import connect  # noqa: F401
    from frazil.spark.jobs import ingest  # noqa: F401
