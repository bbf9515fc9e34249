"""Shows broken pipelines as an import error of this file, with file, key and remedy.

Airflow drops every DAG of a file that fails. So the complaints have a file without DAGs, and the others go on working.
"""

from __future__ import annotations

from frazil.project import Project
from frazil_airflow.project.pipelines import refuse_broken

refuse_broken(Project.load())
