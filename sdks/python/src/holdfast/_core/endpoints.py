"""Which node to try next: the leader if a node has named one, else the known nodes in turn."""

from __future__ import annotations

import ipaddress
import re
from typing import Iterable, List, Optional

from ..errors import InvalidEndpoints

#: No cluster has more nodes.
_TOLD_MAX = 64
_HOST = re.compile(r"[A-Za-z0-9\-._~]+\Z")
_PORT = re.compile(r"\+?[0-9]+\Z")


def checked_address(text: str) -> str:
    """`host:port`. A scheme is taken off, since people copy addresses with one."""
    address = text[7:] if text.startswith("http://") else text
    address = address.rstrip("/")
    host, colon, port = address.rpartition(":")
    if not colon or not _is_host(host) or not _PORT.match(port) or not 0 < int(port) < 65536:
        raise InvalidEndpoints("not_host_and_port", text)
    return address


def _is_host(text: str) -> bool:
    if text.startswith("[") and text.endswith("]"):
        try:
            return "%" not in text and bool(ipaddress.IPv6Address(text[1:-1]))
        except ValueError:
            return False
    return bool(_HOST.match(text))


def _is_address(text: str) -> bool:
    try:
        checked_address(text)
    except InvalidEndpoints:
        return False
    return True


class Endpoints:
    def __init__(self, text: str, discover: bool = True) -> None:
        parts = [part.strip() for part in text.split(",")]
        addresses = [checked_address(part) for part in parts if part]
        if not addresses:
            raise InvalidEndpoints("empty")
        self.addresses: List[str] = addresses
        self._configured = list(addresses)
        self._told: List[str] = []
        self._next = 0
        self._leader_hint: Optional[str] = None
        #: Followers may name a dead leader for a while.
        self._unreachable: Optional[str] = None
        self._unreachable_count = 0
        self._is_fixed = not discover

    def of_other_group(self, leader: str) -> "Endpoints":
        """The same nodes, for a session in another group, which this node leads; an empty address is none."""
        endpoints = Endpoints(",".join(self._configured), not self._is_fixed)
        endpoints.learn(self._told)
        endpoints.follow_leader(leader)
        return endpoints

    def next_address(self) -> str:
        if self._leader_hint is not None:
            leader, self._leader_hint = self._leader_hint, None
            return leader
        address = self.addresses[self._next % len(self.addresses)]
        self._next = (self._next + 1) % len(self.addresses)
        return address

    def follow_leader(self, leader: str) -> None:
        if self.may_follow(leader):
            self._leader_hint = leader

    def may_follow(self, leader: str) -> bool:
        return not self._is_fixed and leader != self._unreachable and _is_address(leader)

    def could_not_reach(self, address: str) -> None:
        self._unreachable = address
        self._unreachable_count += 1
        was_replaced = bool(self._told) and address not in self._told
        if not was_replaced or address not in self.addresses:
            return
        place = self.addresses.index(address)
        if any(known in self._told for known in self.addresses[place + 1 :]):
            # The cluster does not report it either, so the other nodes are tried first.
            self.addresses.append(self.addresses.pop(place))
            if self._next > place:
                self._next -= 1

    def reached(self) -> None:
        self._unreachable = None
        self._unreachable_count = 0

    def has_tried_all(self) -> bool:
        return self._unreachable_count >= len(self.addresses)

    def learn(self, told: Iterable[str]) -> None:
        """The cluster has reported its nodes."""
        if self._is_fixed:
            return
        self._told = [address for address in told if _is_address(address)][:_TOLD_MAX]
        following = self.addresses[self._next] if self._next < len(self.addresses) else None
        known = [it for it in self.addresses if it in self._configured or it in self._told]
        self.addresses = known + [it for it in self._told if it not in known]
        self._next = self.addresses.index(following) if following in self.addresses else 0
