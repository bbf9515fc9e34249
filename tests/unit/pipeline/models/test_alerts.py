"""Keys about alerts in both files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.pipeline.files.files import References
from frazil.pipeline.files.folder import key_changes
from frazil.pipeline.files.load import ConfigError, load_settings
from frazil.pipeline.models.alerts import Alerts, AlertSettings, channels_for, unknown_channels

CHANNELS = {
    "mail": {"type": "smtp", "connection": "m", "to": ["ops@example.org"]},
    "pager": {"type": "pagerduty", "connection": "p", "severity": "critical"},
}
SETTINGS = AlertSettings.model_validate({"channels": CHANNELS})


@pytest.mark.parametrize(
    ("alerts", "complaint"),
    [
        ({"chanels": {}}, "alerts.chanels: unknown key, did you mean 'channels'?"),
        ({"channels": {}}, "alerts.channels: "),
        ({"channels": {"a": {"type": "smtp", "connection": "m"}}}, "alerts.channels.a.to: is required by type smtp"),
        (
            {"channels": {"a": {"type": "slack", "connection": "m", "to": ["x"]}}},
            "alerts.channels.a.to: is for type smtp",
        ),
        ({"channels": {"a": {"type": "sms", "connection": "m"}}}, "alerts.channels.a.type: "),
        ({"channels": CHANNELS, "every": "* * * * *"}, "alerts.every: '* * * * *' is no duration"),
        ({"channels": CHANNELS, "every": "10s"}, "alerts.every: '10s' is shorter than a minute"),
    ],
)
def test_wrong_key_of_alerts_is_refused(tmp_path: Path, alerts: Any, complaint: str):
    """The file is refused, by key path, with what was meant."""
    raw = {"clusters": {"c": {"bootstrap_servers": "x"}}, "catalogs": {"l": {"type": "rest", "uri": "http://x"}}}
    path = tmp_path / "settings.yaml"
    path.write_text(json.dumps({**raw, "alerts": alerts}))

    with pytest.raises(ConfigError) as refused:
        load_settings(path, References({}, {}))

    assert complaint in str(refused.value)


def test_key_whose_attribute_has_another_name_is_told_by_its_key(tmp_path: Path):
    """What is expected of `to`, and that it changed, is told of the key of the file."""
    raw = {"clusters": {"c": {"bootstrap_servers": "x"}}, "catalogs": {"l": {"type": "rest", "uri": "http://x"}}}
    mail = {"type": "smtp", "connection": "m", "to": "${env:ADDRESS}"}
    path = tmp_path / "settings.yaml"
    path.write_text(json.dumps({**raw, "alerts": {"channels": {"mail": mail}}}))

    with pytest.raises(ConfigError, match=r"\.to: .* does not fit; expected: `smtp`: addresses that the mail goes to"):
        load_settings(path, References({"ADDRESS": "a@example.org"}, {}))

    second_settings = AlertSettings.model_validate(
        {"channels": {**CHANNELS, "mail": {**CHANNELS["mail"], "to": ["b@c"]}}}
    )
    assert [change.path for change in key_changes(SETTINGS, second_settings)] == ["channels.mail.to"]


def test_every_channel_is_notified_by_default():
    """Without a word in the pipeline file every channel is told what its severity lets through."""
    assert channels_for(Alerts(), SETTINGS, "stale", "critical") == ["mail", "pager"]
    assert channels_for(Alerts(), SETTINGS, "lag", "warning") == ["mail"]
    assert channels_for(Alerts(), SETTINGS, "dead_letters", "info") == []
    assert channels_for(Alerts(), None, "stale", "critical") == []


def test_pipeline_chooses_its_channels_and_kinds():
    """Named channels only, with a severity and kinds of their own; silent kinds nobody; `false` nothing."""
    chosen = Alerts.model_validate({"channels": {"pager": {"severity": "warning", "kinds": ["lag", "stale"]}}})

    assert channels_for(chosen, SETTINGS, "lag", "warning") == ["pager"]
    assert channels_for(chosen, SETTINGS, "retention", "critical") == []
    assert channels_for(Alerts(silent=("stale",)), SETTINGS, "stale", "critical") == []
    assert channels_for(False, SETTINGS, "stale", "critical") == []  # noqa: FBT003 - as the file says it


def test_unknown_channel_is_refused_with_the_nearest_name():
    """The pipeline is refused by key path, with the nearest name."""
    chosen = Alerts.model_validate({"channels": {"pagr": {}}})

    assert list(unknown_channels(chosen, SETTINGS)) == [
        "alerts.channels.pagr: the settings have no 'pagr' under alerts.channels, did you mean 'pager'?"
    ]


def test_pipeline_with_channels_is_accepted_without_alert_settings():
    """Settings without alerts, such as those of a developer's machine, take it as it is."""
    assert list(unknown_channels(Alerts.model_validate({"channels": {"pager": {}}}), None)) == []
