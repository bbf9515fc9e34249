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
    """Have the driver ready if the run is on a server, where the start of a driver would take longer than a small batch."""
    from frazil.runtime import spark_server

    engine, sources = project.settings.engines.get(pipeline.engine), project.root / "include" / "frazil"
    # A driver has the Frazil of its project, as the server has, which may be another one than the command's.
    is_foreign = sources.is_dir() and not sources.samefile(frazil.__path__[0])
    # Without its server a managed engine starts a Spark of its own, beside which the driver would wait in vain.
    is_warm = (
        engine is not None
        and engine.type == "connect"
        and (not engine.managed or spark_server.is_started(project.home))
    )
    if is_foreign or not is_warm:
        yield
        return
    from frazil.run.batches import session  # noqa: F401 - the driver needs it
    from frazil.spark.submit.job_process import forked_driver

    for catalog in pipeline.catalogs:
        project.lake(catalog).import_client()
    with forked_driver(_import_client):
        yield


def _import_client() -> None:
    """Import what the driver alone needs, while this run is planned."""
    from frazil.spark.jobs.start import start

    start()  # first of all: it prepares imports
    from frazil.spark import connect  # noqa: F401
    from frazil.spark.jobs import ingest  # noqa: F401
