"""Shows broken pipelines as an import error of this file, with file, key and next step.

Airflow drops every DAG of a file that fails. So this file has no DAG, and the DAGs of other files are kept.
"""

from __future__ import annotations

from frazil.project import Project
from frazil_airflow.project.pipelines import refuse_broken

refuse_broken(Project.load())
