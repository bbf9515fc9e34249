"""Reads versions of schemas from the Schema Registry of AWS Glue, which has an API and credentials of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, cast
from uuid import UUID

from frazil.error_codes import REGISTRY_FAILED
from frazil.extras import require
from frazil.records.model.format import SchemaKind, WriterSchema
from frazil.registry.registry import Registry

GLUE_CLIENT: Final = {
    "glue.region": "region_name",
    "glue.access-key-id": "aws_access_key_id",
    "glue.secret-access-key": "aws_secret_access_key",
    "glue.session-token": "aws_session_token",
    "glue.profile-name": "profile_name",
}
"""What the session of boto3 takes for the properties of the settings, which a catalog of type `glue` has as well."""

_SECONDS: Final = 4.0
"""Of a connection, and of an answer; each is tried twice. A schema is served in milliseconds."""

_MISSING: Final = "EntityNotFoundException"
_REFUSED: Final = frozenset(
    {
        *("AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException", "InvalidSignatureException"),
        *("IncompleteSignatureException", "MissingAuthenticationTokenException", "InvalidClientTokenId"),
    }
)
_BUSY: Final = frozenset({"ThrottlingException", "Throttling", "RequestLimitExceeded", "TooManyRequestsException"})
_NOBODY: Final = UUID(int=0)
"""A version that does not exist: an answer that says so proves that this client may read versions."""


class GlueVersions:
    """Versions of schemas by their UUIDs."""

    def __init__(self, registry: Registry) -> None:
        require("glue", f"registry {registry.name}, with framing: glue,")
        import boto3
        from botocore.config import Config

        self._registry: Final = registry
        session = {GLUE_CLIENT[name]: value for name, value in registry.properties.items()}
        bounds = Config(connect_timeout=_SECONDS, read_timeout=_SECONDS, retries={"total_max_attempts": 2})
        with self._translated("opening the client"):
            self._client: Final[Any] = boto3.Session(**session).client(
                "glue", endpoint_url=registry.url or None, config=bounds
            )

    def schema(self, version: UUID) -> WriterSchema | None:
        """Return a version of a schema, or None if there is none.

        Raises:
            Retryable: Glue does not answer, or is too busy.
            Terminal: Glue refuses the credentials, or the server is not Glue.
        """
        from botocore.exceptions import ClientError

        with self._translated(f"asking for schema {version}"):
            try:
                answer = self._client.get_schema_version(SchemaVersionId=str(version))
                return WriterSchema(cast("SchemaKind", answer["DataFormat"]), answer["SchemaDefinition"])
            except ClientError as error:
                code = _code(error)
                if code == _MISSING:
                    return None
                # Anybody may write the UUID of another registry's schema: that must not stop all others.
                if code != "AccessDeniedException" or version == _NOBODY or self.schema(_NOBODY) is not None:
                    raise
                return WriterSchema("AVRO", "", refusal="the registry does not show it to this pipeline")

    def close(self) -> None:
        """End the connections."""
        self._client.close()

    def ask(self) -> None:
        """Ask for a version that does not exist, to check that Glue answers and that this pipeline may ask."""
        self.schema(_NOBODY)

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        from botocore import exceptions as boto

        where = f"{self._registry}: {doing}"
        try:
            yield
        except boto.NoCredentialsError as error:
            # A role that is missing looks like one that the machine's metadata service could not be asked for just now.
            raise REGISTRY_FAILED.retryable(
                f"{where}: found no AWS credentials here",
                next_step="if it persists, give this machine or pod a role, or set glue.access-key-id and glue.secret-access-key in"
                f" registries.{self._registry.name}.properties of the settings",
            ) from error
        except (boto.HTTPClientError, boto.ConnectionError) as error:
            if isinstance(error, boto.SSLError):
                raise REGISTRY_FAILED.terminal(
                    f"{where}: no trusted connection ({error})"[:500],
                    next_step="let AWS_CA_BUNDLE name the certificates to trust",
                ) from error
            raise REGISTRY_FAILED.retryable(
                f"{where}: no answer ({type(error).__name__})",
                next_step=f"check that this machine can reach Glue. If it persists, check registries.{self._registry.name}.url of the settings",
            ) from error
        except boto.ClientError as error:
            raise self._answer_error(error, where) from error
        except (boto.BotoCoreError, ValueError, TypeError, KeyError) as error:
            description = self._registry.redact(f"{type(error).__name__}: {str(error)[:300]}")
            raise REGISTRY_FAILED.terminal(
                f"{where}: {description}",
                next_step=f"check url and properties of registries.{self._registry.name} in the settings",
            ) from error

    def _answer_error(self, error: Any, where: str) -> Exception:
        description = self._registry.redact(str(error)[:300])
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if _code(error) in _BUSY or status >= 500:  # noqa: PLR2004 - HTTP's servers
            return REGISTRY_FAILED.retryable(
                f"{where}: not available now ({description})", next_step="if it persists, look at the account's quotas"
            )
        if _code(error) in _REFUSED:
            return REGISTRY_FAILED.terminal(
                f"{where}: the credentials were refused ({description})",
                next_step="allow them glue:GetSchemaVersion, on all resources: a request names no registry",
            )
        return REGISTRY_FAILED.terminal(
            f"{where}: {description}",
            next_step=f"check url and properties of registries.{self._registry.name} in the settings",
        )


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
