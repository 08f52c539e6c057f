"""Certificates for a test: an authority, a server on 127.0.0.1, and a client, as PEM files."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PASSWORD = "k3y-password"


@dataclass(frozen=True)
class Certificates:
    """Files; ``server`` has key and certificate in one, the client's key is encrypted with `PASSWORD`."""

    authority: Path
    server: Path
    client: Path
    client_key: Path


def make(home: Path, host: str = "127.0.0.1") -> Certificates:
    authority_key, authority = _signed("authority", None, None)
    server_key, server = _signed("server", authority, authority_key, host)
    client_key, client = _signed("client", authority, authority_key)
    found = Certificates(*(home / f"{name}.pem" for name in ("authority", "server", "client", "client-key")))
    found.authority.write_bytes(_pem(authority))
    found.server.write_bytes(_key(server_key) + _pem(server))
    found.client.write_bytes(_pem(client))
    found.client_key.write_bytes(_key(client_key, PASSWORD))
    return found


def _signed(
    name: str,
    authority: x509.Certificate | None,
    signer: ec.EllipticCurvePrivateKey | None,
    host: str | None = None,
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if authority is None else authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
    )
    if host is not None:
        named = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
        made = made.add_extension(named, critical=False)
    return key, made.sign(signer or key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key(key: ec.EllipticCurvePrivateKey, password: str | None = None) -> bytes:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
