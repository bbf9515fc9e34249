"""A private certificate authority for servers and clients of a stack or a test. No browser and no other machine trusts it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from frazil.runtime.home import LOOPBACK, PRIVATE_FILE, write_atomically

_VALID: Final = timedelta(days=3650)
"""How long certificates are valid: nobody renews certificates of a stack on one machine."""

_BACKDATED: Final = timedelta(hours=1)
"""How long before now certificates become valid, because a container's clock may be behind."""

HOSTS: Final = (LOOPBACK, "localhost")
"""Names of the host of the embedded stack's servers."""

_BOTH_SIDES: Final = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
"""Uses of a certificate: a broker is a server, and a client of its controller, with the same certificate."""


_ONLY_SIGNS: Final = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate and its private key, in PEM.

    Attributes:
        certificate: The certificate, which the other side sees.
        key: The private key as PKCS #8 without a password. Its file is readable by its owner only.
    """

    certificate: str
    key: str = field(repr=False)

    def store(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write `NAME.pem` and `NAME.key`. Returns both paths."""
        certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
        write_atomically(key, self.key, mode=PRIVATE_FILE)
        write_atomically(certificate, self.certificate)
        return certificate, key


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority. Who trusts the certificate of its identity trusts all certificates that it issues."""

    identity: Identity

    @classmethod
    def make(cls, name: str, valid: timedelta = _VALID) -> Authority:
        """Create a new authority, which has nothing in common with another one of the same name."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(name, name, key.public_key(), datetime.now(UTC) + valid)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_ONLY_SIGNS, critical=True)
        )
        return cls(_identity(builder.sign(key, hashes.SHA256()), key))

    @classmethod
    def load(cls, folder: Path, name: str) -> Authority:
        """Load the authority whose identity `Identity.store` wrote."""
        return cls(Identity((folder / f"{name}.pem").read_text(), (folder / f"{name}.key").read_text()))

    def issue(self, name: str, valid: timedelta = _VALID, hosts: tuple[str, ...] = HOSTS) -> Identity:
        """Issue a certificate for a server or a client. `name` becomes its common name, by which Kafka knows a client."""
        certificate, key = self._loaded()
        leaf = ec.generate_private_key(ec.SECP256R1())
        issuer = str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
        builder = (
            _builder(name, issuer, leaf.public_key(), datetime.now(UTC) + valid)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([_name(host) for host in hosts]), critical=False)
            .add_extension(x509.ExtendedKeyUsage(_BOTH_SIDES), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        )
        return _identity(builder.sign(key, hashes.SHA256()), leaf)

    def _loaded(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        key = load_pem_private_key(self.identity.key.encode(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)  # noqa: S101 - its own
        return x509.load_pem_x509_certificate(self.identity.certificate.encode()), key


def _builder(name: str, issuer: str, key: ec.EllipticCurvePublicKey, until: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_distinguished(name))
        .issuer_name(_distinguished(issuer))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(datetime.now(UTC), until) - _BACKDATED)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _distinguished(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _identity(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Identity:
    return Identity(
        certificate.public_bytes(Encoding.PEM).decode(),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
    )
