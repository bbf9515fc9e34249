"""Tokens of providers: Kafka's own kind from an installed package, Amazon MSK's from Frazil; and the rack of the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import KafkaError

from frazil.errors import FrazilError, Retryable, Terminal
from frazil.kafka.admin.consumer_group import group_offsets
from frazil.kafka.admin.grants import Grant
from frazil.kafka.admin.observe import observe
from frazil.kafka.client.authentication import refusal as refusal_of
from frazil.kafka.client.cluster import Cluster
from frazil.kafka_properties import TOKEN_PROVIDER
from frazil.runtime.home import project_root
from frazil.verify.check import verify
from tests.integration.security.conftest import USER
from tests.integration.security.listeners import ACCESS_KEY, JAVAC, RACKS, REGION, SECRET_KEY
from tests.topic_reader import values

pytestmark = [
    pytest.mark.tried("Kafka: tokens of a provider", "real"),
    pytest.mark.tried("Amazon MSK: logins by IAM", "test double"),
]

PROVIDER = """
import json, ssl, time, urllib.parse, urllib.request
from pathlib import Path

def token(config):
    options = dict(option.split("=", 1) for option in config.split())
    if Path(options["broken"]).exists():
        raise ValueError(f"no token for {options['secret']}")
    form = urllib.parse.urlencode({"client_id": options["client"], "client_secret": options["secret"]})
    trusted = ssl.create_default_context(cafile=options["ca"])
    with urllib.request.urlopen(options["url"], form.encode(), context=trusted) as answer:
        body = json.load(answer)
    return body["access_token"], time.time() + body["expires_in"], options["client"]
"""


@pytest.fixture
def provided(ward: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Properties of a client that takes its tokens from an installed package; its file `broken` makes the provider fail."""
    packages = ward.root / "packages"
    metadata = packages / "shop_tokens-1.dist-info"
    metadata.mkdir(parents=True)
    (packages / "shop_tokens.py").write_text(PROVIDER)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-tokens\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[frazil.kafka_tokens]\nshop = shop_tokens:token\n")
    monkeypatch.syspath_prepend(packages)
    monkeypatch.delitem(sys.modules, "shop_tokens", raising=False)
    tokens, own = ward.guarded.tokens, ward.guarded.clients()["OAUTHBEARER"]
    config = {
        "client": USER,
        "secret": tokens.clients[USER],
        "url": tokens.url,
        "ca": ward.guarded.secured.ca,
        "broken": ward.root / "broken",
    }
    shared = {key: own[key] for key in ("bootstrap.servers", "security.protocol", "ssl.ca.location", "sasl.mechanism")}
    text = " ".join(f"{key}={value}" for key, value in config.items())
    return {**shared, "sasl.oauthbearer.config": text, TOKEN_PROVIDER: "shop"}


@pytest.fixture
def msk(ward: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Properties of a client that signs with AWS credentials."""
    if JAVAC is None:
        pytest.skip(
            "no javac here: what stands for Amazon MSK in the broker is written in Java (Debian: default-jdk-headless)"
        )
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    return dict(ward.guarded.clients()["MSK"])


@pytest.mark.parametrize("login", ["provided", "msk"])
def test_every_client_takes_tokens_of_the_provider(ward: Any, login: str, request: pytest.FixtureRequest) -> None:
    """Planner, reader, mirror, producers and `verify` ask the provider that the settings name."""
    properties = request.getfixturevalue(login)
    ward.guarded.allow(*ward.needed())
    shop = ward.shop(properties)

    exit_code = shop.run()

    assert (exit_code.written, exit_code.dead) == (2, 1)
    ruler, topic = ward.guarded.ruler, ward.names["topic"]
    assert values(ruler, ward.names["letters"]) == [b"broken"]
    assert group_offsets(ruler, ward.names["group"], [(topic, 0)]) == {(topic, 0): 3}
    ward.guarded.allow(Grant("topic", topic, "DescribeConfigs"), Grant("group", "frazil-verify", "Read"))
    assert verify(shop.project, shop.pipeline).is_clean


def refusal(properties: dict[str, str]) -> FrazilError:
    """What the first question of a client with these properties fails with."""
    with pytest.raises(FrazilError) as caught:
        observe(Cluster("prod", properties), ["orders"])
    return caught.value


def test_refused_signature_is_terminal_and_names_the_provider(
    ward: Any, msk: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker's side looks at each part: a wrong secret, another region, another key."""
    keys = {"secret": (ACCESS_KEY, "another"), "key": ("AKIDOTHER", SECRET_KEY), "right": (ACCESS_KEY, SECRET_KEY)}
    profiles = [
        f"[{name}]\naws_access_key_id={key}\naws_secret_access_key={text}\n" for name, (key, text) in keys.items()
    ]
    (ward.root / "credentials").write_text("".join(profiles))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(ward.root / "credentials"))
    wrong = [f"region={REGION} profile=secret", f"region={REGION} profile=key", "region=us-east-1 profile=right"]

    with ThreadPoolExecutor(len(wrong)) as pool:
        errors = list(pool.map(lambda config: refusal({**msk, "sasl.oauthbearer.config": config}), wrong))

    for error in errors:
        assert type(error) is Terminal
        assert "did not accept the credentials" in error.message
        assert "check for whom the token provider 'msk-iam' signs" in (error.next_step or "")
        assert "sasl.oauthbearer.* of clusters.prod.properties" in (error.next_step or "")


def test_token_that_is_renewed_too_late_is_explained_by_its_provider(
    ward: Any, provided: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that has a token goes on with it; when no other one comes, the error is the provider's, and shows no secret."""
    error = refusal(
        {**provided, "sasl.oauthbearer.config": provided["sasl.oauthbearer.config"].replace("secret=", "secret=x")}
    )
    assert type(error) is Retryable
    assert "the token provider 'shop' failed: HTTPError at line " in error.message

    (ward.root / "broken").touch()
    cluster = Cluster("prod", provided)
    report = KafkaError(
        KafkaError._AUTHENTICATION, "Failed to acquire SASL OAUTHBEARER token: OAuth callback raised exception"
    )
    explained = refusal_of(cluster, str(cluster), [report])
    assert type(explained) is Retryable
    assert "the token provider 'shop' failed: ValueError at line 8 of shop_tokens.py" in explained.message
    assert ward.guarded.tokens.clients[USER] not in str(explained)


def racks(ward: Any) -> set[str]:
    """Racks that consumers of the ward's topic named to the broker."""
    mark = f"{RACKS}: {ward.names['topic']} rack "
    return {line.partition(mark)[2] for line in ward.guarded.log.read_text().splitlines() if mark in line}


def test_consumers_name_the_rack_of_their_machine(
    ward: Any, msk: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker hears it with each fetch, so that it can name a replica in the same rack."""
    monkeypatch.setenv("NODE_ZONE", "euc1-az2")
    ward.guarded.allow(*ward.needed())

    assert ward.shop(msk, rack_variable="NODE_ZONE").run().written == 2

    assert racks(ward) == {"'euc1-az2'"}


@pytest.mark.full
def test_tasks_of_spark_fetch_their_token_and_name_their_rack(
    ward: Any, provided: dict[str, str], msk: dict[str, str]
) -> None:
    """Only names travel: the executor finds the package and its own variable, which the driver does not have."""
    ward.guarded.allow(*ward.needed())
    ward.project(provided, rack_variable="NODE_ZONE")
    path = ward.root / "settings.yaml"
    engine = {"master": "local[1]", "conf": {"spark.executorEnv.NODE_ZONE": "euc1-az3"}}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"engines": {"spark": engine}}))
    packages = os.pathsep.join([str(project_root() / "include"), str(ward.root / "packages")])
    env = os.environ | ward.environment | {"PYTHONPATH": packages}

    def frazil(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "frazil.cli", *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=240)

    done = frazil("run", ward.name, "--engine", "spark", "--json")

    assert done.returncode == 0, done.stderr
    assert '"written":2' in done.stdout
    assert racks(ward) == {"'euc1-az3'"}
    (ward.root / "broken").touch()
    done = frazil("run", ward.name, "--engine", "spark")
    assert done.returncode == 75
    assert "the token provider 'shop' failed: ValueError at line 8 of shop_tokens.py" in done.stderr
    assert ward.guarded.tokens.clients[USER] not in done.stdout + done.stderr
