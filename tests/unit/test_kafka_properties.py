"""A client's properties are completed where it is made: by a token of the named provider, and by the rack of the machine."""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from frazil import kafka_properties
from frazil.error_codes import BAD_SETTING, KAFKA_LOGIN_REFUSED
from frazil.errors import FrazilError, Retryable, Terminal
from frazil.kafka_properties import RACK_VARIABLE, TOKEN_PROVIDER, client_properties, fetch_token, msk_iam
from frazil.pipeline.settings.settings import ClusterSettings

SECRET = "s3cr3t-t0k3n"
PROPERTIES = {"bootstrap.servers": "kafka:9092", TOKEN_PROVIDER: "shop", "sasl.oauthbearer.config": "tenant=shop"}

MODULE = """
import time
calls = []

def token(config):
    calls.append(config)
    return f"token-{len(calls)}", time.time() + 60

def raising(config):
    raise ValueError("s3cr3t-t0k3n is not accepted")

no_function = "s3cr3t-t0k3n"
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Installs `shop`, a provider of a module `shop_tokens`."""

    def install(place: str) -> None:
        (tmp_path / "shop_tokens.py").write_text(MODULE)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "shop_tokens", raising=False)
        own = EntryPoints([EntryPoint("shop", place, kafka_properties.GROUP)])
        monkeypatch.setattr(kafka_properties, "entry_points", lambda group: own.select(group=group))

    return install


def answering(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the provider `shop` return something."""
    monkeypatch.setattr(kafka_properties, "PROVIDERS", {"shop": answer if callable(answer) else lambda _: answer})


def failure() -> FrazilError:
    """What asking the provider `shop` fails with."""
    with pytest.raises(FrazilError) as caught:
        fetch_token("prod", PROPERTIES)
    return caught.value


def test_first_token_is_ready_and_later_ones_are_fetched_when_the_client_asks(installed: Callable[[str], None]) -> None:
    """The client's first question costs no second call; each further one asks the provider, with the cluster's own text."""
    installed("shop_tokens:token")

    own = client_properties("prod", PROPERTIES)

    import shop_tokens

    assert shop_tokens.calls == ["tenant=shop"]
    assert [own[TOKEN_PROVIDER]("ignored")[0] for _ in range(3)] == ["token-1", "token-2", "token-3"]
    assert shop_tokens.calls == ["tenant=shop"] * 3
    assert PROPERTIES[TOKEN_PROVIDER] == "shop"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("shop_tokens:absent", "can't be loaded from shop_tokens:absent"),
        ("shop_absent:token", "can't be loaded from shop_absent:token"),
        ("shop_tokens:no_function", "is a str: expected a function"),
    ],
)
def test_unusable_entry_point_is_terminal(installed: Callable[[str], None], place: str, message: str) -> None:
    """What is not there can't be called, and waiting brings it no nearer."""
    installed(place)

    error = failure()

    assert type(error) is Terminal
    assert error.code is BAD_SETTING
    assert message in error.message
    assert error.next_step
    assert SECRET not in str(error)


def test_unknown_provider_is_terminal_and_names_those_that_are_installed() -> None:
    """Its reader sees what he may have meant, and what brings another one."""
    error = failure()

    assert type(error) is Terminal
    assert "no token provider 'shop' is installed here; installed are msk-iam" in error.message
    assert "clusters.prod.token_provider" in (error.next_step or "")


def test_provider_that_raises_is_retryable_and_its_text_is_not_shown(installed: Callable[[str], None]) -> None:
    """Class and line tell where to look; the text may quote the token, so it is left to who calls the provider by hand."""
    installed("shop_tokens:raising")

    error = failure()

    assert type(error) is Retryable
    assert error.code is KAFKA_LOGIN_REFUSED
    assert (
        "Kafka cluster 'prod': the token provider 'shop' failed: ValueError at line 10 of shop_tokens.py"
        in error.message
    )
    assert "python -c 'import shop_tokens as p; p.raising(\"\")'" in (error.next_step or "")
    assert SECRET not in str(error)
    assert error.__cause__ is None
    assert error.__context__ is None


def test_module_that_raises_when_imported_is_a_provider_that_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: Callable[[str], None]
) -> None:
    """What it says while it is imported may be a secret, too."""
    installed("shop_raising:token")
    (tmp_path / "shop_raising.py").write_text(f"raise RuntimeError('{SECRET}')\n")

    error = failure()

    assert type(error) is Retryable
    assert "the token provider 'shop' failed: RuntimeError at line 1 of shop_raising.py" in error.message
    assert SECRET not in str(error)


def test_module_that_hangs_when_imported_is_given_up_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: Callable[[str], None]
) -> None:
    """The bound is one of loading, too."""
    monkeypatch.setattr(kafka_properties, "PROVIDER_SECONDS", 0.05)
    installed("shop_hanging:token")
    (tmp_path / "shop_hanging.py").write_text("import time\ntime.sleep(2)\ntoken = print\n")

    assert "gave no token within 0.05 s" in failure().message


def test_provider_that_hangs_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits hears of it, and it is worth another try."""
    monkeypatch.setattr(kafka_properties, "PROVIDER_SECONDS", 0.05)
    ended = Event()
    answering(lambda _: ended.wait(60), monkeypatch)

    error = failure()
    ended.set()

    assert type(error) is Retryable
    assert "gave no token within 0.05 s" in error.message
    assert error.next_step


LATER = time.time() + 3600
RUBBISH = {
    "nothing": (None, "found NoneType"),
    "a text alone": (SECRET, "found str"),
    "one part": ((SECRET,), "found tuple of 1"),
    "five parts": ((SECRET, LATER, "", {}, ""), "found tuple of 5"),
    "bytes": ((SECRET.encode(), LATER), "expected a token of printable ASCII characters, no spaces, found bytes"),
    "no token": (("", LATER), "expected a token"),
    "a line feed": ((f"{SECRET}\n", LATER), "expected a token"),
    "a space": ((f"Bearer {SECRET}", LATER), "expected a token"),
    "other letters": (("töken", LATER), "expected a token"),
    "a text as expiry": ((SECRET, "tomorrow"), "expected the expiry in seconds since 1970, found str"),
    "truth as expiry": ((SECRET, True), "found bool"),
    "no number": ((SECRET, float("nan")), "within ten years, found float"),
    "milliseconds": ((SECRET, time.time() * 1000), "not milliseconds"),
    "a principal of bytes": ((SECRET, LATER, b"me"), "expected a text as principal, found bytes"),
    "a list of extensions": ((SECRET, LATER, "", ["a"]), "expected a dict of texts as extensions, found list"),
    "extensions of numbers": ((SECRET, LATER, "", {"a": 1}), "expected a dict of texts as extensions, found dict"),
}


@pytest.mark.parametrize(("answer", "problem"), RUBBISH.values(), ids=RUBBISH)
def test_answer_that_is_no_token_is_terminal_and_not_shown(
    answer: Any, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client would say nothing of it, or crash; what is expected and found is told by type."""
    answering(answer, monkeypatch)

    error = failure()

    assert type(error) is Terminal
    assert error.code is KAFKA_LOGIN_REFUSED
    assert "the token provider 'shop' returned no token: " in error.message
    assert problem in error.message
    assert "(token, expiry in seconds since 1970)" in (error.next_step or "")
    assert SECRET not in str(error)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text() | st.binary(),
        lambda strategy: st.lists(strategy) | st.tuples(strategy, strategy) | st.dictionaries(st.text(), strategy),
    )
)
def test_any_answer_is_a_token_or_an_error_with_next_step(answer: Any) -> None:
    """Nothing that a provider returns ends a run in another way."""
    with pytest.MonkeyPatch.context() as patch:
        answering(answer, patch)
        try:
            outcome: Any = fetch_token("prod", PROPERTIES)
        except FrazilError as error:
            outcome = error
    if not isinstance(outcome, FrazilError):
        token, expiry, principal, extensions = outcome
        assert token.isascii()
        assert expiry > time.time()
        assert (type(principal), type(extensions)) == (str, dict)
    else:
        assert outcome.next_step


def test_expired_token_is_retryable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one may be fresh."""
    answering((SECRET, time.time() - 5), monkeypatch)

    error = failure()

    assert type(error) is Retryable
    assert "returned a token that expired at 20" in error.message
    assert SECRET not in str(error)


@pytest.mark.parametrize(("zone", "rack"), [("euc1-az2", "euc1-az2"), ("", None), (None, None)])
def test_rack_is_looked_up_where_the_client_is_made(
    zone: str | None, rack: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable's name travels, its value does not; without a value the client has no rack, and reads from leaders."""
    monkeypatch.delenv("NODE_ZONE", raising=False)
    if zone is not None:
        monkeypatch.setenv("NODE_ZONE", zone)

    own = client_properties("prod", {"bootstrap.servers": "kafka:9092", RACK_VARIABLE: "NODE_ZONE"})

    assert own == {"bootstrap.servers": "kafka:9092"} | ({"client.rack": rack} if rack else {})


SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}


def test_settings_hand_names_to_the_client_as_plain_texts() -> None:
    """What travels to executors is what the settings file says."""
    entry = ClusterSettings(
        bootstrap_servers="kafka:9092", properties=SASL, token_provider="msk-iam", rack_variable="NODE_ZONE"
    )

    assert entry.client_properties == {
        "bootstrap.servers": "kafka:9092",
        **SASL,
        TOKEN_PROVIDER: "msk-iam",
        RACK_VARIABLE: "NODE_ZONE",
    }


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"properties": {"oauth_cb": "msk-iam"}}, "properties: oauth_cb is set by token_provider"),
        (
            {"rack_variable": "ZONE", "properties": {"client.rack": "a"}},
            "rack_variable and properties: client.rack exclude",
        ),
        ({"token_provider": "msk-iam"}, "token_provider needs properties with security.protocol: SASL_SSL"),
        ({"token_provider": "x", "properties": SASL | {"sasl.mechanism": "PLAIN"}}, "sasl.mechanism: OAUTHBEARER"),
        (
            {"token_provider": "x", "properties": SASL | {"sasl.oauthbearer.method": "oidc"}},
            "and without sasl.oauthbearer.method",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(entry: dict[str, Any], message: str) -> None:
    """A provider that no client would ask, or a value with two sources, is an error of the file."""
    with pytest.raises(ValidationError, match=message):
        ClusterSettings(bootstrap_servers="kafka:9092", **entry)


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without AWS credentials and without a region."""
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    (tmp_path / "credentials").write_text(
        "[ingest]\naws_access_key_id = AKIDINGEST\naws_secret_access_key = of-ingest\n"
    )
    return monkeypatch


def test_msk_token_is_an_address_signed_for_connect(aws: pytest.MonkeyPatch) -> None:
    """Region and profile come from the cluster's text, the token lives for 15 minutes, and no secret is in it."""
    token, expiry = msk_iam("region=eu-central-1 profile=ingest")

    address = urlparse(base64.urlsafe_b64decode(token + "==").decode())
    query = {name: values[0] for name, values in parse_qs(address.query).items()}
    assert (address.scheme, address.hostname) == ("https", "kafka.eu-central-1.amazonaws.com")
    assert query["Action"] == "kafka-cluster:Connect"
    assert query["X-Amz-Credential"].startswith("AKIDINGEST/")
    assert query["X-Amz-Credential"].endswith("/eu-central-1/kafka-cluster/aws4_request")
    assert 800 < expiry - time.time() <= 900


def test_msk_token_takes_region_and_credentials_of_the_machine(aws: pytest.MonkeyPatch) -> None:
    """As AWS's other clients do; a temporary credential's own token goes along."""
    aws.setenv("AWS_REGION", "us-east-1")
    aws.setenv("AWS_ACCESS_KEY_ID", "AKIDROLE")
    aws.setenv("AWS_SECRET_ACCESS_KEY", "of-role")
    aws.setenv("AWS_SESSION_TOKEN", "session")

    address = base64.urlsafe_b64decode(msk_iam("")[0] + "==").decode()

    assert "kafka.us-east-1.amazonaws.com" in address
    assert "X-Amz-Security-Token=session" in address


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("", "found no region"),
        ("region=eu-central-1 role=admin", "found region, role"),
    ],
)
def test_incomplete_msk_login_is_terminal(aws: pytest.MonkeyPatch, config: str, message: str) -> None:
    """Each says what is missing, and where it goes."""
    with pytest.raises(Terminal, match=message) as caught:
        fetch_token("prod", {TOKEN_PROVIDER: "msk-iam", "sasl.oauthbearer.config": config})

    assert caught.value.next_step


def test_missing_aws_credentials_are_tried_again(aws: pytest.MonkeyPatch) -> None:
    """A role that is missing looks like one that could not be asked for just now."""
    with pytest.raises(Retryable, match="found no AWS credentials here") as caught:
        fetch_token("prod", {TOKEN_PROVIDER: "msk-iam", "sasl.oauthbearer.config": "region=eu-central-1"})

    assert caught.value.next_step


def test_missing_aws_profile_is_named_by_line_and_command(aws: pytest.MonkeyPatch) -> None:
    """An error of AWS's library is one of the provider."""
    with pytest.raises(Retryable, match="'msk-iam' failed: ProfileNotFound at line") as caught:
        fetch_token("prod", {TOKEN_PROVIDER: "msk-iam", "sasl.oauthbearer.config": "region=x profile=absent"})

    assert "import frazil.kafka_properties as p; p.msk_iam" in (caught.value.next_step or "")
