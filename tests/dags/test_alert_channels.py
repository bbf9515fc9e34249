"""What reaches people: Airflow's own notifiers against real servers on the loopback interface."""

from __future__ import annotations

import json
import logging
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from frazil.pipeline.channels import Notice
from frazil.pipeline.models.alerts import ChannelSettings
from tests.conftest import FreePorts
from tests.receivers import Mails, Posts, mails, posts

Connect = Callable[..., str]

TOKEN = "T0AAA/B0BBB/s3cr3t-token-of-slack"
NOTICE = Notice(
    "pizzas",
    "ops",
    "failed_run",
    "critical",
    "pizzas: a run failed",
    "Run scheduled__1\nfound {{ 7 * 7 }} <b>bold</b> & <!channel> \x1b[31m",
    "frazil history pizzas",
    "http://airflow.example.org/dags/ingest__pizzas",
)


@pytest.fixture
def hook() -> Iterator[Posts]:
    with posts() as alert_posts:
        yield alert_posts


@pytest.fixture
def mailbox(free_ports: FreePorts) -> Iterator[Mails]:
    (port,) = free_ports(1)
    with mails(port) as mailbox:
        yield mailbox


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    def made(name: str, **fields: object) -> str:
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))
        return name

    return made


@pytest.fixture
def pager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Posts]:
    """PagerDuty's address stand-in: its client speaks TLS only."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    _self_signed(certificate, key)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with posts(context) as alert_posts:
        yield alert_posts


def _self_signed(certificate: Path, key: Path) -> None:
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private_key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private_key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private_key, hashes.SHA256())
    )
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        private_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


def deliver(channel: ChannelSettings, notice: Notice = NOTICE) -> str | None:
    from frazil_airflow.alerts.channels import deliver as sent

    return sent(channel, notice)


def recovered() -> Notice:
    from dataclasses import replace

    return replace(NOTICE, recovered=True)


def test_mail_shows_record_content_as_text(mailbox: Mails, connect: Connect):
    """Text and HTML both show templates, markup and control characters of the cause as they are, and the next command."""
    extra = {"disable_tls": True, "disable_ssl": True, "from_email": "frazil@example.org"}
    name = connect("mail", conn_type="smtp", host="127.0.0.1", port=mailbox.port, extra=extra)

    assert deliver(ChannelSettings(type="smtp", connection=name, to=("ana@example.org", "ops@example.org"))) is None

    (mail,) = mailbox.got
    assert mail["Subject"] == "[Frazil] critical: pizzas: a run failed"
    assert (mail["From"], mail["To"]) == ("frazil@example.org", "ana@example.org, ops@example.org")
    text, html = (mail.get_body((kind,)).get_content() for kind in ("plain", "html"))
    assert "{{ 7 * 7 }} <b>bold</b> & <!channel> \\x1b[31m" in text
    assert "frazil history pizzas" in text
    assert "{{ 7 * 7 }} &lt;b&gt;bold&lt;/b&gt; &amp; &lt;!channel&gt; \\x1b[31m" in html


def test_slack_message_mentions_nobody_whatever_record_says(hook: Posts, connect: Connect):
    """The cause is in an element in which nothing is markup; the path has the token of the connection."""
    name = connect("chat", conn_type="slackwebhook", host=f"http://127.0.0.1:{hook.port}/services", password=TOKEN)

    assert deliver(ChannelSettings(type="slack", connection=name)) is None

    ((path, _, body),) = hook.got
    assert path == f"/services/{TOKEN}"
    kinds = {block["type"] for block in body["blocks"] if "<!channel>" in json.dumps(block)}
    assert kinds == {"rich_text"}
    assert body["text"] == "critical: pizzas: a run failed"


def test_webhook_gets_key_and_state_of_each_alert(hook: Posts, connect: Connect):
    """The JSON has the key of the trouble and says whether it is over; headers of the connection go with it."""
    extra = {"Authorization": "Bearer of-the-webhook"}
    name = connect("web", conn_type="http", host=f"http://127.0.0.1:{hook.port}/in/s3cr3t", extra=extra)
    channel = ChannelSettings(type="webhook", connection=name)

    assert (deliver(channel), deliver(channel, recovered())) == (None, None)

    assert [(path, headers["Authorization"]) for path, headers, _ in hook.got] == [
        ("/in/s3cr3t", "Bearer of-the-webhook")
    ] * 2
    assert [(body["key"], body["status"]) for body in hook.bodies] == [
        ("failed_run/pizzas", "firing"),
        ("failed_run/pizzas", "recovered"),
    ]
    assert hook.bodies[0]["next_step"] == "frazil history pizzas"


def test_incident_is_resolved_when_its_alert_is_over(pager: Posts, connect: Connect):
    """PagerDuty's own client opens and resolves by one deduplication key, at the address of the connection."""
    name = connect(
        "pager", conn_type="pagerduty_events", host=f"https://127.0.0.1:{pager.port}", password="routing-key"
    )
    channel = ChannelSettings(type="pagerduty", connection=name)

    assert (deliver(channel), deliver(channel, recovered())) == (None, None)

    assert [
        (path, event["event_action"], event["dedup_key"], event["routing_key"]) for path, _, event in pager.got
    ] == [
        ("/v2/enqueue", "trigger", "frazil/failed_run/pizzas", "routing-key"),
        ("/v2/enqueue", "resolve", "frazil/failed_run/pizzas", "routing-key"),
    ]
    assert pager.bodies[0]["payload"]["severity"] == "critical"


@pytest.mark.parametrize("kind", ["slack", "webhook"])
def test_token_in_address_is_hidden_when_server_is_away(
    kind: str,
    free_ports: FreePorts,
    connect: Connect,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
):
    """Neither the error nor anything that was logged has the token, which clients quote with the address."""
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    if kind == "slack":
        name = connect("chat", conn_type="slackwebhook", host=f"{address}/services", password=TOKEN)
    else:
        name = connect("web", conn_type="http", host=f"{address}/services/{TOKEN}")

    with caplog.at_level(logging.INFO):
        why = deliver(ChannelSettings(type=kind, connection=name))

    assert "refused" in str(why)
    logged = caplog.text + capsys.readouterr().out
    shown = str(why) + logged
    assert not [part for part in (TOKEN, *TOKEN.split("/")) if part in shown]
    assert "refused" in logged, "the hook's own log is not looked at"


@pytest.mark.parametrize("status", [404, 500])
def test_refused_notification_counts_as_failed(status: int, hook: Posts, connect: Connect):
    """The answer is in the error, so that the notice is sent again."""
    hook.status = status
    web = connect("web", conn_type="http", host=f"http://127.0.0.1:{hook.port}")
    chat = connect("chat", conn_type="slackwebhook", host=f"http://127.0.0.1:{hook.port}/services", password=TOKEN)

    assert str(status) in str(deliver(ChannelSettings(type="webhook", connection=web)))
    assert str(status) in str(deliver(ChannelSettings(type="slack", connection=chat)))


def test_missing_connection_does_not_silence_other_channels(hook: Posts, connect: Connect, tmp_path: Path):
    """Each channel is tried, and the answer says by name which was told."""
    from frazil.project import Project
    from frazil_airflow.alerts.channels import channels_of, send

    web = connect("web", conn_type="http", host=f"http://127.0.0.1:{hook.port}")
    project = Project.load(
        _project(
            tmp_path, {"gone": {"type": "slack", "connection": "gone"}, "web": {"type": "webhook", "connection": web}}
        )
    )

    problems = send(project, NOTICE, channels_of(project, NOTICE))

    assert list(problems) == ["gone", "web"]
    assert "gone" in str(problems["gone"])
    assert problems["web"] is None
    assert len(hook.got) == 1


@pytest.mark.parametrize("provider", ["smtp", "slack", "pagerduty"])
def test_missing_provider_fails_its_own_channel_alone(provider: str):
    """The notifier of each other channel loads without it: mail is not silenced by an absent PagerDuty."""
    code = (
        "import sys\nfrom pkgutil import resolve_name\nfrom frazil.pipeline.channels import CHANNELS\n"
        "import frazil_airflow.alerts.channels\n"
        f"sys.modules.update({{f'airflow.providers.{provider}.{{part}}': None for part in ('hooks', 'notifications')}})\n"
        "for name, channel in CHANNELS.items():\n"
        "    try:\n        resolve_name(channel.notifier)\n"
        "    except ModuleNotFoundError:\n        print(name)"
    )

    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert ended.stdout.split() == [provider]


def _project(root: Path, channels: dict[str, dict[str, str]]) -> dict[str, str]:
    """The environment of a project with channels, and without pipelines."""
    (root / "pipelines").mkdir()
    settings = {
        "clusters": {"local": {"bootstrap_servers": "127.0.0.1:1"}},
        "catalogs": {"lake": {"uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}/warehouse"}},
        "alerts": {"channels": channels},
    }
    (root / "settings.yaml").write_text(json.dumps(settings))
    return {
        "FRAZIL_HOME": str(root / "home"),
        "FRAZIL_SETTINGS": str(root / "settings.yaml"),
        "FRAZIL_PIPELINES": str(root / "pipelines"),
    }
