"""Keys, certificates and tokens of one plane, made once in its folder and readable by its owner only.

One certificate authority signs everything: the API server and etcd prove who they are, and the API server shows etcd
a client certificate, so that no other user of this machine reads Secrets out of the store. People and components reach
the API server with a bearer token each. All of it is worthless outside this plane.
"""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

VALID_DAYS = 3650

ADMIN = "admin"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KWOK = "kwok"
LWS_MANAGER = "lws-manager"

# Who holds a token: user name, and the group that RBAC knows. The scheduler has its own role from the API server's
# bootstrap policy; the rest act for whole nodes or for every controller, which only the masters group may.
USERS: Mapping[str, tuple[str, str]] = {
    ADMIN: ("local-admin", "system:masters"),
    CONTROLLER_MANAGER: ("system:kube-controller-manager", "system:masters"),
    SCHEDULER: ("system:kube-scheduler", "system:authenticated"),
    KWOK: ("local-kwok", "system:masters"),
    LWS_MANAGER: ("local-lws-manager", "system:masters"),
}


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """Where the credentials of a plane lie, and its tokens by holder (`USERS`)."""

    folder: Path
    tokens: Mapping[str, str]

    @property
    def ca(self) -> Path:
        """Certificate of the authority, PEM."""
        return self.folder / "ca.crt"

    @property
    def token_file(self) -> Path:
        """What the API server reads with `--token-auth-file`."""
        return self.folder / "tokens.csv"

    def certificate(self, name: str) -> Path:
        """Certificate of one holder, PEM."""
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        """Private key of one holder, PEM."""
        return self.folder / f"{name}.key"

    @property
    def service_account_public_key(self) -> Path:
        """What service account tokens are checked with, PEM."""
        return self.folder / "service-account.pub"


def make_credentials(folder: Path, *, addresses: Iterable[str] = ("127.0.0.1",)) -> Credentials:
    """Return the credentials in this folder, making them if they are not there yet.

    Args:
        folder: Where they lie; created with access for its owner only.
        addresses: IP addresses under which the API server is reached, beside the Service names it always has.
    """
    done = folder / "complete"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _make(folder, addresses)
        done.touch()
    rows = [line.split(",") for line in (folder / "tokens.csv").read_text().splitlines()]
    holders = {user: holder for holder, (user, _) in USERS.items()}
    return Credentials(folder=folder, tokens={holders[row[1]]: row[0] for row in rows if row[1] in holders})


def _make(folder: Path, addresses: Iterable[str]) -> None:
    authority_key, authority = _make_authority()
    _write(folder / "ca.crt", authority.public_bytes(serialization.Encoding.PEM))
    hosts = [
        *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses),
        x509.IPAddress(ipaddress.ip_address("10.96.0.1")),  # the `kubernetes` Service, first of the range
        *(
            x509.DNSName(f"kubernetes{suffix}")
            for suffix in ("", ".default", ".default.svc", ".default.svc.cluster.local")
        ),
        x509.DNSName("localhost"),
    ]
    for name in ("kube-apiserver", "etcd", "etcd-client", LWS_MANAGER):
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _sign(name, key, authority, authority_key, hosts)
        _write(folder / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM))
        _write(folder / f"{name}.key", _pem(key))
    signer = ec.generate_private_key(ec.SECP256R1())
    _write(folder / "service-account.key", _pem(signer))
    public = signer.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _write(folder / "service-account.pub", public)
    rows = [f'{secrets.token_hex(20)},{user},{holder},"{group}"' for holder, (user, group) in USERS.items()]
    _write(folder / "tokens.csv", ("\n".join(rows) + "\n").encode())


def _make_authority() -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _named("serving-stack local plane")
    certificate = (
        _dated(x509.CertificateBuilder())
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return key, certificate


def _sign(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    hosts: Sequence[x509.GeneralName],
) -> x509.Certificate:
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return (
        _dated(x509.CertificateBuilder())
        .subject_name(_named(name))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(key_cert_sign=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _dated(builder: x509.CertificateBuilder) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    # An hour back: a clock that is set right between two starts must not make the plane unusable.
    return (
        builder.not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=VALID_DAYS))
        .serial_number(x509.random_serial_number())
    )


def _usage(*, key_cert_sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=key_cert_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def write_kubeconfig(path: Path, *, server: str, credentials: Credentials, holder: str, context: str) -> None:
    """Write a kubeconfig with one context, for one holder of a token, readable by its owner only.

    The authority is embedded, so that the file works from anywhere.
    """
    authority = base64.b64encode(credentials.ca.read_bytes()).decode()
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": context, "user": {"token": credentials.tokens[holder]}}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
        "current-context": context,
    }
    draft = path.with_name(f".{path.name}.draft")
    _write(draft, yaml.safe_dump(content, sort_keys=False).encode())
    draft.replace(path)
