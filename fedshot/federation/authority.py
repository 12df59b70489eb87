"""Who may speak to whom: a certificate authority of the federation's own, the server's certificate, the clients' keys.

The authority signs the server's certificate and nothing else. Clients trust it alone: no public authority can stand in
for the server. A client proves itself with an ECDSA P-384 key in OpenSSH format; the server knows the public half.
"""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedshot.errors import UserError
from fedshot.federation.layout import write_secret
from fedshot.store import write_atomic

LIFETIME = timedelta(days=825)  # of a certificate: the longest that common TLS libraries accept for a server
_CLOCK_SKEW = timedelta(days=1)  # clients whose clock is behind the server's still accept a new certificate


@dataclass(frozen=True)
class KeyPair:
    """A client's key: the private half leaves in its bundle, the public half stays with the server."""

    private: str  # OpenSSH
    public: str  # OpenSSH, one line


def make_key_pair(comment: str) -> KeyPair:
    """A new ECDSA P-384 key in OpenSSH format, as the engine asks for it.

    >>> pair = make_key_pair("ward-7")
    >>> pair.public.split()[0], pair.public.split()[2], pair.private.splitlines()[0]
    ('ecdsa-sha2-nistp384', 'ward-7', '-----BEGIN OPENSSH PRIVATE KEY-----')
    """
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    return KeyPair(private, f"{public} {comment}\n")


def make_authority(certificate: Path, key: Path, name: str) -> None:
    """A new authority: its self-signed certificate, and its key that only the owner of the file can read."""
    secret = ec.generate_private_key(ec.SECP384R1())
    subject = _named(f"fedshot authority of {name}")
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)  # signs certificates and lists
    signed = (
        _certificate(subject, subject, secret.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(secret.public_key()), critical=False)
        .sign(secret, hashes.SHA384())
    )
    write_secret(key, secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    write_atomic(certificate, signed.public_bytes(Encoding.PEM))


def make_server_certificate(authority: tuple[Path, Path], certificate: Path, key: Path, hosts: tuple[str, ...]) -> None:
    """A certificate of the server for host names and addresses, signed by the authority (its certificate and key)."""
    issuer = x509.load_pem_x509_certificate(authority[0].read_bytes())
    signer = serialization.load_pem_private_key(authority[1].read_bytes(), password=None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise UserError(f"{authority[1]} is not the key of a federation's authority")
    secret = ec.generate_private_key(ec.SECP384R1())
    usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)  # signs the TLS handshake
    signed = (
        _certificate(_named(hosts[0]), issuer.subject, secret.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA384())
    )
    write_secret(key, secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    write_atomic(certificate, signed.public_bytes(Encoding.PEM))


def expiry(certificate: Path) -> datetime:
    """When a certificate ends."""
    return x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])  # X.520 allows 64 characters


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
