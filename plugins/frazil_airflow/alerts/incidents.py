"""Airflow's PagerDuty notifier with two additions: the address of the connection, and a time limit."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow.providers.pagerduty.hooks.pagerduty_events import PagerdutyEventsHook, prepare_event_data
from airflow.providers.pagerduty.notifications.pagerduty import PagerdutyNotifier
from airflow.sdk import Connection

from frazil.pipeline.channels import TIMEOUT_SECONDS


class IncidentHook(PagerdutyEventsHook):
    """Airflow's PagerDuty hook. It sends to the connection's address, if there is one: accounts in Europe have another."""

    def __init__(self, connection: str) -> None:
        super().__init__(pagerduty_events_conn_id=connection)
        self.address = Connection.get(connection).host or None

    def send_event(self, **event: Any) -> str:  # type: ignore[override]  # the same arguments, by name
        """Send the event, within the time limit of all channels."""
        from pagerduty import EventsApiV2Client

        client = EventsApiV2Client(self.integration_key, base_url=self.address)
        client.timeout = TIMEOUT_SECONDS
        return client.send_event(**prepare_event_data(**event))


class IncidentNotifier(PagerdutyNotifier):
    """Airflow's PagerDuty notifier, with this hook."""

    @cached_property
    def hook(self) -> PagerdutyEventsHook:
        """The hook that the notifier sends with."""
        return IncidentHook(str(self.pagerduty_events_conn_id))
