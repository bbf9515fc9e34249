"""Health check of an Airflow component: `healthy.py scheduler` asks the api-server how the scheduler is."""

from __future__ import annotations

import json
import os
import sys
from urllib.parse import urljoin
from urllib.request import urlopen

HEALTH = "/api/v2/monitor/health"
PATIENCE_SECONDS = 5


def main(component: str) -> int:
    """0 when the component is healthy, else 1 and a line that `docker inspect` shows."""
    address = urljoin(os.environ["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"], HEALTH)  # base_url is for browsers
    with urlopen(address, timeout=PATIENCE_SECONDS) as answer:  # noqa: S310, the address is the stack's own
        status = json.load(answer)[component]["status"]
    print(f"{component}: {status}")
    return 0 if status == "healthy" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
