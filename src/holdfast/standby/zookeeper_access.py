"""A driver's access to ZooKeeper: its identity, the ACL of its nodes, and TLS.

    zk://host:2181/flows/revenue                                  plain
    zks://host:2281/flows/revenue?ca=/etc/zk/ca.pem               TLS; ``cert`` and ``key`` if servers ask for them
    HOLDFAST_ZOOKEEPER_AUTH=digest:user:password                  the identity of this driver, for both kinds
    hf.zookeeper("host:2281", "/flows/revenue", auth=provider)    the same from code; provider() → ("digest", "user:…")

A driver that authenticates owns its nodes: they are created with ZooKeeper's *creator all* ACL, unless ``acl`` says
otherwise. To take a driver's lease away, one must delete its node, and that needs the right to delete children of the
lease's path. So the ACL of the path is checked when a driver connects: if anybody may create or delete nodes there, the
lease protects nothing.

Secrets are not part of a lease's address: its name (``lease.url``) has neither credentials nor query.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote

from holdfast.errors import LeaseError
from holdfast.reporting import redaction

AUTH = "HOLDFAST_ZOOKEEPER_AUTH"
KEY_PASSWORD = "HOLDFAST_ZOOKEEPER_KEY_PASSWORD"

Identity: TypeAlias = tuple[str, str]
"""A scheme of ZooKeeper and its credential: ``("digest", "user:password")``."""

_PARAMETERS = ("ca", "cert", "key", "check_hostname")


@dataclass(frozen=True)
class Access:
    """The identity, ACL and TLS settings of a driver (see the head of this file). Its repr shows no secret."""

    auth: Identity | Callable[[], Identity] | None = field(default=None, repr=False)
    """The identity of this driver, or a function that returns it and is called when the driver connects."""

    acl: Sequence[Any] | None = None
    """The ACL of the driver's nodes, as kazoo's ``default_acl`` (see ``kazoo.security``); None: creator all, if there
    is an ``auth``."""

    tls: bool = False
    ca: str | None = None
    """A file of the certificates by which servers must be signed; None: the certificates of the system."""

    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    sasl: Mapping[str, str] | None = field(default=None, repr=False)
    """The options that kazoo takes as ``sasl_options``; they need the package pure-sasl."""

    def __post_init__(self) -> None:
        if self.auth is not None and not callable(self.auth):
            _checked(self.auth)
        redaction.learn(*(text for text in (self.key_password, (self.sasl or {}).get("password")) if text))
        given = [name for name in ("ca", "certificate", "key") if getattr(self, name)]
        if given and not self.tls:
            raise LeaseError(f"lease: {', '.join(given)}: these are for TLS; write zks://, or give tls=True")
        if bool(self.certificate) != bool(self.key):
            raise LeaseError("lease: a certificate of this driver needs its key, and a key its certificate; give both")

    @property
    def guarded(self) -> bool:
        """Whether nodes are created with an ACL that protects them."""
        return self.auth is not None or self.sasl is not None or self.acl is not None

    def options(self) -> dict[str, Any]:
        """Return the arguments of a KazooClient."""
        from kazoo.security import CREATOR_ALL_ACL

        options: dict[str, Any] = {}
        if self.auth is not None:
            options["auth_data"] = [_checked(self.auth() if callable(self.auth) else self.auth)]
        if self.guarded:
            options["default_acl"] = list(CREATOR_ALL_ACL if self.acl is None else self.acl)
        if self.sasl is not None:
            options["sasl_options"] = dict(self.sasl)
        if self.tls:
            options |= {
                "use_ssl": True,
                "verify_certs": True,
                "check_hostname": self.check_hostname,
                "ca": self.ca,
                "certfile": self.certificate,
                "keyfile": self.key,
                "keyfile_password": self.key_password,
            }
        return options


def access_of(lease: str, scheme: str, user: str, query: str) -> Access:
    """Return the access that an address and the environment describe. Raise `LeaseError` if one of them is wrong."""
    given = dict(parse_qsl(query, keep_blank_values=True))
    unknown = [name for name in given if name not in _PARAMETERS]
    if unknown:
        raise LeaseError(
            f"lease {redaction.shown(lease)}: parameter {unknown[0]!r} is not known; expected {', '.join(_PARAMETERS)}",
            lease=redaction.shown(lease),
        )
    auth: Identity | None = None
    if user:
        auth = "digest", unquote(user)
    elif told := os.environ.get(AUTH):
        kind, marked, credential = told.partition(":")
        redaction.learn(credential)
        if not marked or not kind or not credential:
            raise LeaseError(f"{AUTH}: expected scheme:credential, such as digest:user:password")
        auth = kind, credential
    return Access(
        auth=auth,
        tls=scheme == "zks",
        ca=given.get("ca"),
        certificate=given.get("cert"),
        key=given.get("key"),
        key_password=os.environ.get(KEY_PASSWORD) if given.get("key") else None,
        check_hostname=given.get("check_hostname", "true").lower() != "false",
    )


def _checked(auth: Identity) -> Identity:
    scheme, credential = auth
    redaction.learn(credential, credential.partition(":")[2])
    if not scheme or not credential or (scheme == "digest" and ":" not in credential):
        raise LeaseError("lease: auth must be a scheme and a credential, such as ('digest', 'user:password')")
    return scheme, credential


def open_to_anybody(acls: Sequence[Any]) -> bool:
    """Whether an ACL lets anybody create or delete nodes, or change the ACL."""
    from kazoo.security import Permissions

    much = Permissions.CREATE | Permissions.DELETE | Permissions.ADMIN
    return any(acl.id.scheme == "world" and acl.perms & much for acl in acls)
