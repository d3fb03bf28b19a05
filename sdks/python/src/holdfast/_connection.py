"""A framed connection to a node: greeting, pieces, farewell."""

from __future__ import annotations

import socket
import ssl
import threading
from typing import List, Optional, Tuple

from ._core.lease import MS
from ._core.pacing import HandshakePatience
from ._security import ALPN_FRAMED, Denied, Security
from ._wire import END, FRAME, GREETING, PING, Message, NotDecodable, Pieces, decode, piece

_CONNECT_TIMEOUT = 1.0
#: Without TLS, a node greets at once. What takes longer does not speak this protocol.
_GREETING_TIMEOUT = 0.4
_NO_NODE = "the program there does not greet as a node does: check the endpoints, clients use the client port (7420)"
_NO_GREETING = "the node ended the TLS handshake, and does not greet: it may be overloaded"
_FAREWELL_TIMEOUT = 1.0
_READ_BYTES = 64 * 1024
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class StreamEnded(Exception):
    """The stream is over; `failure` says why."""

    def __init__(self, failure: Message) -> None:
        self.failure = failure
        super().__init__(failure.get("message", ""))


def dial(address: str, security: Security, patience: HandshakePatience) -> socket.socket:
    """A connection on which both sides have greeted, and the client has said who it is."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    connected = socket.create_connection((host, int(port)), _CONNECT_TIMEOUT)
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected = security.wrap(connected, host, patience, ALPN_FRAMED)
        is_tls = security.ca is not None
        connected.settimeout(patience.duration / MS / 1000 if is_tls else _GREETING_TIMEOUT)
        try:
            _greet(connected)
        except socket.timeout as error:
            raise ConnectionError(_NO_GREETING if is_tls else _NO_NODE) from error
        connected.sendall(security.introduction())
        connected.setblocking(False)
    except ssl.SSLError as error:
        # A node that does not accept our certificate says so after the handshake.
        connected.close()
        raise Denied(f"the node refused the connection: {error.reason or error}; check cert= and key=") from error
    except BaseException:
        connected.close()
        raise
    return connected


def _greet(connected: socket.socket) -> None:
    connected.sendall(GREETING)
    greeting = b""
    while len(greeting) < len(GREETING):
        read = connected.recv(len(GREETING) - len(greeting))
        if not read:
            raise ConnectionError(_NO_NODE)
        greeting += read
    if greeting != GREETING:
        raise ConnectionError(_NO_NODE)


class Connection:
    """Both directions of a connection. It never blocks."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._pieces = Pieces()
        self._unsent = b""

    def fileno(self) -> int:
        return self.socket.fileno()

    @property
    def has_room(self) -> bool:
        return not self._unsent

    def send(self, frame: bytes) -> None:
        self._unsent += piece(FRAME, frame)
        self.flush()

    def ping(self) -> None:
        self._unsent += piece(PING)
        self.flush()

    def flush(self) -> None:
        """Sends as much as the connection takes. If it is broken, reading says so."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
        except _WOULD_BLOCK:
            pass
        except OSError:
            self._unsent = b""

    def read(self) -> Tuple[List[Message], Optional[StreamEnded]]:
        """The frames that have come, and whether the stream is over behind them."""
        frames: List[Message] = []
        try:
            is_over = self._receive()
            for kind, content in self._pieces.take():
                if kind == FRAME and content:
                    frames.append(decode("ServerFrame", content))
                elif kind == END:
                    return frames, StreamEnded(decode("Failure", content))
            if is_over:
                return frames, StreamEnded({"message": "the stream ended", "retryable": True})
        except (OSError, NotDecodable) as error:
            return frames, StreamEnded({"message": str(error), "retryable": True})
        return frames, None

    def _receive(self) -> bool:
        """Reads what has come. True if nothing more will."""
        while True:
            try:
                data = self.socket.recv(_READ_BYTES)
            except _WOULD_BLOCK:
                return False
            if not data:
                return True
            self._pieces.feed(data)
            # TLS may hold more than the system says that there is to read.
            if not isinstance(self.socket, ssl.SSLSocket):
                return False

    def leave(self, with_farewell: bool) -> None:
        """With a farewell, the node knows that the session goes on elsewhere."""
        if with_farewell:
            threading.Thread(target=self._say_farewell, name="holdfast-farewell", daemon=True).start()
        else:
            self.close()

    def close(self) -> None:
        self.socket.close()

    def _say_farewell(self) -> None:
        try:
            self.socket.settimeout(_FAREWELL_TIMEOUT)
            self.socket.sendall(self._unsent + piece(FRAME))
            self.socket.shutdown(socket.SHUT_WR)
            # To hang up earlier could overtake the farewell.
            while self.socket.recv(_READ_BYTES):
                pass
        except OSError:
            pass
        finally:
            self.close()
