"""How a client reaches a cluster that speaks TLS, and proves who it is.

A node's certificate says what it is for in a URI: `holdfast://CLUSTER/node/3`. A client compares the cluster with that
of its authority, `holdfast://CLUSTER/ca`, so a certificate holds wherever its node moves.
"""

from __future__ import annotations

import re
import socket
import ssl
from typing import Any, Callable, Iterable, NamedTuple, Optional, Set, Union

from ._wire import AUTH, piece

_ALPN_FRAMED = "holdfast/1"
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

    def check(self) -> "Security":
        """Mistakes are told at once, and not when a node is dialled."""
        if self.verify not in ("cluster", "host"):
            raise ValueError(f"verify is 'cluster' or 'host', and not {self.verify!r}")
        if self.ca is None and (self.cert is not None or self.key is not None):
            raise ValueError("a certificate is of no use without TLS: give ca=, the file of the cluster's authority")
        if self.ca is not None:
            context = self._context()
            if self.verify == "cluster":
                self._cluster(context)
        return self

    def wrap(self, connected: socket.socket, host: str) -> socket.socket:
        """A connection on which the node has shown that it is one of the cluster."""
        if self.ca is None:
            return connected
        # The files are read again for each connection: certificates are replaced while programs run.
        context = self._context()
        try:
            wrapped = context.wrap_socket(connected, server_hostname=host)
        except ssl.SSLError as error:
            raise Denied(f"no TLS connection: {error.reason or error}; {_advice(error)}") from error
        if self.verify == "cluster":
            wanted = self._cluster(context)
            certificate: Any = wrapped.getpeercert() or {}
            if not any(name.startswith("node/") and cluster in wanted for cluster, name in _names(certificate)):
                wrapped.close()
                raise Denied(f"the certificate is none of a node of {', '.join(sorted(wanted))}; check the endpoints")
        return wrapped

    def introduction(self) -> bytes:
        """What a framed connection sends before its first frame."""
        if self.credential is None:
            return b""
        credential = self.credential() if callable(self.credential) else self.credential
        return piece(AUTH, credential.strip().encode("utf-8"))

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = self.verify == "host"
        context.load_verify_locations(self.ca)
        context.set_alpn_protocols([_ALPN_FRAMED])
        if self.cert is not None:
            context.load_cert_chain(self.cert, self.key)
        return context

    def _cluster(self, context: ssl.SSLContext) -> Set[str]:
        authorities: Iterable[Any] = context.get_ca_certs()
        clusters = {cluster for it in authorities for cluster, name in _names(it) if name == "ca"}
        if not clusters:
            raise ValueError(
                f"{self.ca} does not say of which cluster it is: use the authority that `holdfast cert ca` made, or"
                " compare the host with verify='host'"
            )
        return clusters


def _names(certificate: Any) -> "list[tuple[str, str]]":
    """Cluster and purpose, as the URIs of a certificate say."""
    uris = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
    return [(match[1], match[2]) for match in map(_NAME.match, uris) if match is not None]


def _advice(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "ca= must be the authority that signed the node's certificate"
    return "check that the node speaks TLS, and cert= and key= if it demands a certificate"
