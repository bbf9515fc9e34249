"""The ACLs that each task needs on a cluster: no more is needed, and a test runs with exactly these.

docs/grants.md is made of it.
"""

from __future__ import annotations

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
    """One operation on one resource, from wherever a client comes.

    Attributes:
        name: Of the resource; of those in `ROLES` with a place for what the pipeline says, such as `{topic}`.
        operation: In Kafka's own spelling, such as `DescribeConfigs`.
    """

    resource: Resource
    name: str
    operation: str

    @property
    def resource_text(self) -> str:
        """Which resource, for the docs."""
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
        """The grants for certain names."""
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
    """The grants that these roles need together, for certain names: `grants("ingest", topic="orders")`."""
    return [one for role in ROLES if role.name in roles for one in role.grants_for(**names)]


_ITERATIONS: Final = 4096
"""The least that Kafka takes. Passwords here are random, no dictionary helps to guess them."""


def set_passwords(cluster: Cluster, users: Mapping[str, str]) -> None:
    """Give users their passwords for SCRAM-SHA-512, in place of earlier ones."""
    mechanism = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
    changes: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(name, mechanism, password.encode()) for name, password in users.items()
    ]
    with admin(cluster) as admin_client:
        for future in admin_client.client.alter_user_scram_credentials(
            changes, request_timeout=REQUEST_SECONDS
        ).values():
            admin_client.answer(future)


def grant(cluster: Cluster, user: str, grants: Iterable[Grant]) -> None:
    """Add ACLs for a user. Existing ACLs stay."""
    with admin(cluster) as admin_client:
        bindings = [_binding(user, one) for one in grants]
        for future in admin_client.client.create_acls(bindings, request_timeout=REQUEST_SECONDS).values():
            admin_client.answer(future)


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
