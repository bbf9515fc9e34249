"""Who may do what at a cluster with an authorizer: passwords of users, and grants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from frazil.kafka.client import REQUEST_SECONDS, admin
from frazil.kafka.cluster import Cluster
from frazil.kafka.grants import Grant

_ITERATIONS: Final = 4096
"""The least that Kafka takes. Passwords here are random, no dictionary helps to guess them."""


def set_passwords(cluster: Cluster, users: Mapping[str, str]) -> None:
    """Give users their passwords for SCRAM-SHA-512, in place of earlier ones.

    Raises:
        FrazilError: see `frazil.kafka.failure.translate`.
    """
    mechanism = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
    changes: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(name, mechanism, password.encode()) for name, password in users.items()
    ]
    with admin(cluster) as asked:
        for future in asked.client.alter_user_scram_credentials(changes, request_timeout=REQUEST_SECONDS).values():
            asked.answer(future)


def grant(cluster: Cluster, user: str, grants: Iterable[Grant]) -> None:
    """Allow a user something. What is allowed already stays.

    Raises:
        FrazilError: see `frazil.kafka.failure.translate`.
    """
    with admin(cluster) as asked:
        wanted = [_binding(user, one) for one in grants]
        for future in asked.client.create_acls(wanted, request_timeout=REQUEST_SECONDS).values():
            asked.answer(future)


def _binding(user: str, one: Grant) -> AclBinding:
    return AclBinding(
        ResourceType[one.resource.upper()],
        one.name,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        _operation(one.operation),
        AclPermissionType.ALLOW,
    )


def _operation(name: str) -> AclOperation:
    """`DescribeConfigs` -> `DESCRIBE_CONFIGS`."""
    spelled = "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in name)
    return AclOperation[spelled.lstrip("_")]
