"""Explains why a client and a broker refuse each other: passwords, tokens, certificates. Each error names the setting to correct."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError

from frazil.error_codes import KAFKA_LOGIN_REFUSED
from frazil.errors import FrazilError, Terminal
from frazil.kafka.client.cluster import Cluster
from frazil.kafka_properties import TOKEN_PROVIDER, fetch_token

_REFUSED: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
    }
)

_ALERTS: Final = (
    "alert bad certificate",
    "alert certificate unknown",
    "alert certificate expired",
    "alert certificate required",
    "alert certificate revoked",
    "alert unknown ca",
    "alert access denied",
    "alert handshake failure",
)
"""A broker's refusals of a client's certificate: OpenSSL's texts for alerts of RFC 8446, 6.2. librdkafka reports them as lost
connections."""

_NO_ISSUER: Final = ("failed to connect", "could not connect", "resolve host", "timed out", "timeout was reached")
"""Texts of curl, which fetches tokens, for an endpoint that does not answer. Refused credentials have the endpoint's own text."""

_NO_KERBEROS: Final = "No provider for SASL mechanism GSSAPI"
"""Text of a librdkafka without Cyrus SASL, as in confluent-kafka's wheel."""

_NO_TICKET: Final = ("No Kerberos credentials available", "Cannot contact any KDC")
"""Texts of GSSAPI without a ticket from `kinit`: the key may be wrong, or the key distribution center down."""

_VERIFY_FAILED: Final = "certificate verify failed"
_ADDRESS: Final = re.compile(r"ssl://([^/\s]+):(\d+)")
_CERTIFICATE_SECONDS: Final = 2.0
"""Bounds each step of the connection that reads the broker's certificate; the broker answered a moment ago."""


def is_refusal(error: KafkaError) -> bool:
    """Return whether one side rejected the other's credentials or certificate."""
    if error.code() in _REFUSED or _NO_KERBEROS in error.str():
        return True
    return error.code() == KafkaError._TRANSPORT and any(alert in error.str() for alert in _ALERTS)


def refusal(cluster: Cluster, where: str, reports: Iterable[KafkaError]) -> FrazilError | None:
    """The error for the first of the reports that is about credentials or certificates; None if none is.

    Only a missing token or ticket is Retryable: its server may not have answered.

    Args:
        cluster: The cluster.
        where: Begin of the message.
        reports: The error of a request, and the errors that the client reported to its callback.
    """
    error = next(filter(is_refusal, reports), None)
    if error is None:
        return None
    detail = cluster.redact(f"{error.str()} ({error.name()})")
    if any(alert in detail for alert in _ALERTS):
        return _client_certificate_error(cluster, where, detail)
    if _VERIFY_FAILED in detail:
        return _broker_certificate_error(cluster, where, detail)
    if error.code() == KafkaError._SSL:
        return KAFKA_LOGIN_REFUSED.terminal(
            f"{where}: the TLS connection failed: {detail}",
            next_step=f"check {_settings(cluster)}: the keys that begin with ssl.",
        )
    if "OAUTHBEARER token" in detail:
        return _token_error(cluster, where, detail)
    return _credentials_error(cluster, where, detail)


def _credentials_error(cluster: Cluster, where: str, detail: str) -> FrazilError:
    message, next_step = f"{where} did not accept the credentials: {detail}", _credentials_step(cluster, detail)
    if any(words in detail for words in _NO_TICKET):
        return KAFKA_LOGIN_REFUSED.retryable(message, next_step=f"try again; if it persists, {next_step}")
    return KAFKA_LOGIN_REFUSED.terminal(message, next_step=next_step)


def _token_error(cluster: Cluster, where: str, detail: str) -> FrazilError:
    """Explain why the client has no token. A provider is called once more, because the client's error has no reason."""
    settings = _settings(cluster)
    if TOKEN_PROVIDER in cluster.properties:
        try:
            fetch_token(cluster.name, cluster.properties)
        except FrazilError as error:
            return error
        what = f"the token provider {cluster.properties[TOKEN_PROVIDER]!r} failed, and works again now"
        return KAFKA_LOGIN_REFUSED.retryable(f"{where}: {what}", next_step="try again")
    if any(words in detail.lower() for words in _NO_ISSUER):
        next_step = f"try again; if it persists, check sasl.oauthbearer.token.endpoint.url of {settings}"
        return KAFKA_LOGIN_REFUSED.retryable(
            f"{where}: the token endpoint does not answer: {detail}", next_step=next_step
        )
    next_step = (
        f"no token was received: check sasl.oauthbearer.token.endpoint.url, .client.id, .client.secret and https.ca.location of"
        f" {settings}"
    )
    return KAFKA_LOGIN_REFUSED.terminal(f"{where} did not accept the credentials: {detail}", next_step=next_step)


def _credentials_step(cluster: Cluster, detail: str) -> str:
    settings, lowered = _settings(cluster), detail.lower()
    if "mechanism handshake failed" in lowered or "unsupported sasl mechanism" in lowered:
        return f"set sasl.mechanism of {settings} to one that the broker supports"
    if _NO_KERBEROS in detail:
        return "build confluent-kafka against a librdkafka with Cyrus SASL, as docs/logins.md says under Kerberos"
    mechanism = cluster.properties.get("sasl.mechanism") or cluster.properties.get("sasl.mechanisms", "")
    if mechanism.upper() == "GSSAPI":
        return (
            f"check sasl.kerberos.principal, .keytab and .service.name of {settings}: `kinit -k -t KEYTAB PRINCIPAL` must give a"
            " ticket where this ran"
        )
    if mechanism.upper() == "OAUTHBEARER":
        signer = cluster.properties.get(TOKEN_PROVIDER)
        whose = (
            f"for whom the token provider {signer!r} signs, and" if signer else "its audience, scope and issuer, and"
        )
        return f"the token was refused: check {whose} sasl.oauthbearer.* of {settings}"
    return (
        f"check sasl.username and sasl.password of {settings}: a wrong password, or a user that the broker doesn't know"
    )


def _client_certificate_error(cluster: Cluster, where: str, detail: str) -> Terminal:
    settings = _settings(cluster)
    shown = {"ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location"} & cluster.properties.keys()
    if not shown:
        what, next_step = (
            "asks for a client certificate, and none is configured",
            f"set ssl.certificate.location of {settings}",
        )
    elif (ended := _expiry(cluster)) is not None:
        what = f"refused the client's certificate, which expired at {ended:%Y-%m-%dT%H:%M:%SZ}"
        next_step = f"renew the certificate that {settings} name"
    else:
        what = "refused the client's certificate"
        next_step = f"use a certificate of an authority that the broker trusts, and check the ssl.certificate and ssl.key of {settings}"
    return KAFKA_LOGIN_REFUSED.terminal(f"{where} {what}: {detail}", next_step=next_step)


def _expiry(cluster: Cluster) -> datetime | None:
    """When the client's certificate expired; None if it did not, or can't be read here."""
    text = cluster.properties.get("ssl.certificate.pem")
    path = cluster.properties.get("ssl.certificate.location")
    with suppress(ImportError, OSError, ValueError):
        from cryptography import x509

        pem = text.encode() if text else Path(path or "").read_bytes()
        ended = x509.load_pem_x509_certificate(pem).not_valid_after_utc
        return ended if ended < datetime.now(UTC) else None
    return None


def _broker_certificate_error(cluster: Cluster, where: str, detail: str) -> Terminal:
    """Explain by a second connection why a broker's certificate is not trusted: the client's error has no reason."""
    why = _distrust_reason(cluster, detail)
    settings = _settings(cluster)
    if "expired" in why:
        next_step = "renew the broker's certificate"
    elif "mismatch" in why:
        next_step = f"use a host name that the broker's certificate has: in clusters.{cluster.name}.bootstrap_servers, or in the broker's"
        next_step += " advertised.listeners"
    else:
        next_step = f"set ssl.ca.location of {settings} to the authority that signed the broker's certificate"
    reason = f" ({why})" if why else ""
    return KAFKA_LOGIN_REFUSED.terminal(
        f"{where}: the broker's certificate is not trusted{reason}: {detail}", next_step=next_step
    )


def _distrust_reason(cluster: Cluster, detail: str) -> str:
    """OpenSSL's reason not to trust the broker's certificate; empty if there is none, or the broker does not answer."""
    match = _ADDRESS.search(detail)
    if match is None:
        return ""
    host, port = match[1].strip("[]"), int(match[2])
    try:
        context = ssl.create_default_context(
            cafile=cluster.properties.get("ssl.ca.location"), cadata=cluster.properties.get("ssl.ca.pem")
        )
        with (
            socket.create_connection((host, port), timeout=_CERTIFICATE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return ""
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except (OSError, ValueError):
        return ""


def _settings(cluster: Cluster) -> str:
    return f"clusters.{cluster.name}.properties of the settings"
