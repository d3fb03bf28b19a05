"""How a client reaches a cluster that speaks TLS, and proves who it is.

A node's certificate says what it is for in a URI: `holdfast://CLUSTER/node/3`. A client compares the cluster with that
of its authority, `holdfast://CLUSTER/ca`, so a certificate holds wherever its node moves.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from typing import Any, Callable, Iterable, NamedTuple, Optional, Set, Union

from ._core.lease import MS
from ._core.pacing import HandshakePatience
from ._wire import AUTH, piece
from .errors import InvalidSecurity

ALPN_FRAMED = "holdfast/1"
_NO_HANDSHAKE = "the node is reached, and does not end the TLS handshake: it may have many to make"
_TOKEN_BYTES_MAX = 4096
_NAME = re.compile(r"holdfast://([^/]+)/(node/[1-9][0-9]*|ca)\Z")

Credential = Union[str, Callable[[], str]]


class Denied(OSError):
    """The node is not the right one, or does not accept this client."""


class Security(NamedTuple):
    """With `ca`, the client speaks TLS, and nothing else."""

    ca: Optional[str] = None
    cert: Optional[str] = None
    key: Optional[str] = None
    verify: str = "cluster"
    credential: Optional[Credential] = None
    auth_file: Optional[str] = None

    def check(self) -> "Security":
        """Mistakes are told at once, and not when a node is dialled."""
        if self.verify not in ("cluster", "host"):
            raise InvalidSecurity(f"verify= is 'cluster' or 'host', and not {self.verify!r}")
        if self.ca is None and (self.cert is not None or self.key is not None):
            raise InvalidSecurity("cert= and key= need TLS: give ca=, too, the file of the cluster's authority")
        if (self.cert is None) != (self.key is None):
            raise InvalidSecurity("cert= and key= belong together: give both")
        if self.credential is not None and self.auth_file is not None:
            raise InvalidSecurity("give credential= or auth_file=, and not both")
        self._read_auth_file()
        if self.ca is not None:
            context = self._context()
            if self.verify == "cluster":
                self._cluster(context)
        return self

    def wrap(self, connected: socket.socket, host: str, patience: HandshakePatience, protocol: str) -> socket.socket:
        """A connection on which the node has shown that it is one of the cluster."""
        if self.ca is None:
            return connected
        # The files are read again for each connection: certificates are replaced while programs run.
        context = self._context()
        context.set_alpn_protocols([protocol])
        connected.settimeout(patience.duration / MS / 1000)
        took_too_long = False
        try:
            wrapped = context.wrap_socket(connected, server_hostname=host)
        except socket.timeout as error:
            took_too_long = True
            raise ConnectionError(_NO_HANDSHAKE) from error
        except ssl.SSLError as error:
            raise Denied(f"no TLS connection: {error.reason or error}; {_advice(error)}") from error
        finally:
            patience.note(took_too_long)
        if self.verify == "cluster":
            wanted = self._cluster(context)
            certificate: Any = wrapped.getpeercert() or {}
            if not any(name.startswith("node/") and cluster in wanted for cluster, name in _names(certificate)):
                wrapped.close()
                raise Denied(f"the certificate is none of a node of {', '.join(sorted(wanted))}; check the endpoints")
        return wrapped

    def introduction(self) -> bytes:
        """What a framed connection sends before its first frame."""
        credential = self.present_credential()
        return piece(AUTH, credential.encode("utf-8")) if credential else b""

    def present_credential(self) -> str:
        """Empty if there is none."""
        if self.auth_file is not None:
            return self._read_auth_file()
        if self.credential is None:
            return ""
        credential = self.credential() if callable(self.credential) else self.credential
        return credential.strip()

    def _read_auth_file(self) -> str:
        if self.auth_file is None:
            return ""
        try:
            with open(self.auth_file, encoding="utf-8") as file:
                token = file.read(_TOKEN_BYTES_MAX).strip()
                status = os.fstat(file.fileno())
        except (OSError, UnicodeDecodeError) as error:
            raise _unreadable("auth_file", self.auth_file, error) from error
        # A secret that is mounted into a container belongs to another user.
        others = 0o077 if status.st_uid == os.geteuid() else 0o007
        if status.st_mode & others:
            raise InvalidSecurity(
                f"auth_file={self.auth_file!r} can be read by other users of this machine: run chmod 600 on it"
            )
        if not token.startswith("hft_"):
            raise InvalidSecurity(f"auth_file={self.auth_file!r} has no token: it must have one line, hft_...")
        return token

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = self.verify == "host"
        try:
            context.load_verify_locations(self.ca)
        except OSError as error:
            raise _unreadable("ca", self.ca, error) from error
        if self.cert is not None:
            try:
                context.load_cert_chain(self.cert, self.key)
            except OSError as error:
                # OpenSSL does not say which of the two it is.
                for option, path in (("cert", self.cert), ("key", self.key)):
                    if path is not None and not os.access(path, os.R_OK):
                        raise _unreadable(option, path, error) from error
                raise _unreadable("cert", self.cert, error) from error
        return context

    def _cluster(self, context: ssl.SSLContext) -> Set[str]:
        authorities: Iterable[Any] = context.get_ca_certs()
        clusters = {cluster for it in authorities for cluster, name in _names(it) if name == "ca"}
        if not clusters:
            raise InvalidSecurity(
                f"ca={self.ca!r} does not say of which cluster it is: use the authority that `holdfast cert ca` made,"
                " or compare the host with verify='host'"
            )
        return clusters


def _unreadable(option: str, path: Optional[str], error: Exception) -> InvalidSecurity:
    if isinstance(error, ssl.SSLError):
        words = f"is no such file in PEM format ({error.reason or error})"
    else:
        words = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    return InvalidSecurity(f"{option}={path!r} {words}")


def _names(certificate: Any) -> "list[tuple[str, str]]":
    """Cluster and purpose, as the URIs of a certificate say."""
    uris = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
    return [(match[1], match[2]) for match in map(_NAME.match, uris) if match is not None]


def _advice(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "ca= must be the authority that signed the node's certificate"
    return "check that the node speaks TLS, and cert= and key= if it demands a certificate"
