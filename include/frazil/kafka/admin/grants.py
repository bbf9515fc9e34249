"""The ACLs that each task needs on a cluster, from which docs/grants.md is made. A test runs with exactly these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

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

from frazil.kafka.client.client import REQUEST_SECONDS, admin
from frazil.kafka.client.cluster import Cluster

Resource = Literal["topic", "group", "transactional_id"]


@dataclass(frozen=True, slots=True)
class Grant:
    """One operation on one resource, from any host.

    Attributes:
        name: Name of the resource; in `ROLES` a placeholder, such as `{topic}`.
        operation: Kafka's spelling, such as `DescribeConfigs`.
    """

    resource: Resource
    name: str
    operation: str

    @property
    def resource_text(self) -> str:
        """The resource as the docs name it."""
        return f"{self.resource.replace('_', ' ')} `{self.name}`"


@dataclass(frozen=True, slots=True)
class Role:
    """A task that needs rights on a Kafka cluster, such as ingesting.

    Attributes:
        does: What the task does, for the docs.
        consequence: What happens without the grants, for the docs.
    """

    name: str
    does: str
    grants: tuple[Grant, ...]
    consequence: str

    def grants_for(self, **names: str) -> Iterator[Grant]:
        """The grants with names in place of placeholders."""
        return (replace(one, name=one.name.format(**names)) for one in self.grants)


ROLES: Final = (
    Role(
        "ingest",
        "plan and read the topics of `source`: the process that plans, `engine: inline`, Spark's executors",
        (Grant("topic", "{topic}", "Read"),),
        "the run fails at the plan, and says which topic",
    ),
    Role(
        "mirror",
        "show the position as the offsets of `source.consumer_group`",
        (Grant("group", "{group}", "Read"),),
        "the run succeeds and reports that the group could not be moved",
    ),
    Role(
        "dead_letter_topic",
        "send dead letters to `dead_letters.topic`",
        (Grant("topic", "{letters}", "Write"),),
        "a batch with dead letters fails before it is decided, and says which grant",
    ),
    Role(
        "make_dead_letter_topic",
        "make that topic when it is missing",
        (Grant("topic", "{letters}", "Create"),),
        "make it yourself",
    ),
    Role(
        "configs",
        "see how topics keep records: alerts about retention, `frazil replay`, `frazil reset` to earlier records, how large a batch of dead letters may be",
        (Grant("topic", "{topic}", "DescribeConfigs"), Grant("topic", "{letters}", "DescribeConfigs")),
        "no alert about retention; `frazil replay` refuses, and so does `frazil reset` if rows would go",
    ),
    Role(
        "capture",
        "`frazil capture`, and DAGs of captures: `{topic}` is the capture's, `{positions}` is `captures.positions`, `{capture}` its name, behind that of the `environment` if the settings name one",
        (
            Grant("topic", "{topic}", "Write"),
            Grant("topic", "{positions}", "Write"),
            Grant("topic", "{positions}", "Read"),
            Grant("topic", "{positions}", "DescribeConfigs"),
            Grant("transactional_id", "frazil.capture.{capture}", "Write"),
        ),
        "the capture fails before it sends anything, and says which grant",
    ),
    Role(
        "make_capture_topics",
        "make those topics when they are missing",
        (Grant("topic", "{topic}", "Create"), Grant("topic", "{positions}", "Create")),
        "make them yourself, `{positions}` with one partition and `cleanup.policy=compact`",
    ),
    Role(
        "produce",
        "`frazil produce`, which makes the topic when it is missing",
        (Grant("topic", "{topic}", "Write"), Grant("topic", "{topic}", "Create")),
        "the command fails",
    ),
    Role(
        "take_over",
        "`frazil import-connector` where it asks for a sink's offsets: `{group}` is the connector's group",
        (Grant("group", "{group}", "Describe"), Grant("topic", "{topic}", "Describe")),
        "the command fails",
    ),
)


def grants(*roles: str, **names: str) -> list[Grant]:
    """The grants that these roles need together: `grants("ingest", topic="orders")`."""
    return [one for role in ROLES if role.name in roles for one in role.grants_for(**names)]


_ITERATIONS: Final = 4096
"""The minimum that Kafka accepts: the passwords here are random, so no dictionary helps to guess them."""


def set_passwords(cluster: Cluster, users: Mapping[str, str]) -> None:
    """Set the users' passwords for SCRAM-SHA-512."""
    mechanism = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
    changes: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(name, mechanism, password.encode()) for name, password in users.items()
    ]
    with admin(cluster) as admin_client:
        futures = admin_client.client.alter_user_scram_credentials(changes, request_timeout=REQUEST_SECONDS)
        for future in futures.values():
            admin_client.answer(future)


def grant(cluster: Cluster, user: str, grants: Iterable[Grant]) -> None:
    """Add ACLs for a user. Existing ACLs stay."""
    bindings = [
        AclBinding(
            ResourceType[one.resource.upper()],
            one.name,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[re.sub("(?<=.)(?=[A-Z])", "_", one.operation).upper()],  # DescribeConfigs: DESCRIBE_CONFIGS
            AclPermissionType.ALLOW,
        )
        for one in grants
    ]
    with admin(cluster) as admin_client:
        for future in admin_client.client.create_acls(bindings, request_timeout=REQUEST_SECONDS).values():
            admin_client.answer(future)
