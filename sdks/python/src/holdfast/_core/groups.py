"""Which Raft group of the cluster has a lock. Each group has sessions, leases and a leader of its own.

A client learns from the welcome of a session which group owns which slots. That map can be outdated: the group that is
asked then refuses with `wrong_group`, and has not carried the request out. So an old map makes a request slow, and
never wrong. A cluster of one group tells no map, and then everything is in the root group.
"""

from __future__ import annotations

import random
import threading
from typing import Callable, Dict, List, NamedTuple, Optional

from .._wire import Message
from ..errors import Rejected
from .lease import MS
from .pacing import Backoff
from .requests import Entry

#: The only group of a cluster that tells no map. On the wire it is 0.
ROOT = 1
SLOTS = 4096
_GROUPS_MAX = 64
#: After so many redirects the caller gets the refusal: the groups do not agree on who owns the lock.
_REDIRECTS_MAX = 8
#: How long a request waits for a newer map before it asks again by the present one.
_MAP_PATIENCE = 2_000 * MS

_POLYNOMIAL = 0x82F63B78


def _crc_of_byte(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_CRC32C = tuple(map(_crc_of_byte, range(256)))


def slot_of(name: str) -> int:
    """The slot of a lock name: CRC32C of its tag, or else of the whole name."""
    crc = 0xFFFF_FFFF
    for byte in tag_of(name).encode("utf-8"):
        crc = crc >> 8 ^ _CRC32C[(crc ^ byte) & 0xFF]
    return (crc ^ 0xFFFF_FFFF) % SLOTS


def tag_of(name: str) -> str:
    """The text between the first braces that have some, or else the name."""
    rest = name
    while True:
        _, opening, behind = rest.partition("{")
        tag, closing, rest = behind.partition("}")
        if not opening or not closing:
            return name
        if tag:
            return tag


class GroupMap:
    """The owner of each slot, and the client address of each group's leader: empty if it is not known."""

    def __init__(self, epoch: int, owners: List[int], leaders: Dict[int, str]) -> None:
        self.epoch = epoch
        self.owners = owners
        self.leaders = leaders

    @staticmethod
    def decode(message: Message) -> "Optional[GroupMap]":
        """`None` if the message does not give each slot to exactly one group."""
        owners = [0] * SLOTS
        leaders: Dict[int, str] = {}
        last = 0
        for route in message.get("groups", ()):
            group = route.get("group", 0)
            if not last < group <= _GROUPS_MAX:
                return None
            last = group
            leaders[group] = route.get("leader", "")
            for run in route.get("slots", ()):
                first, count = run.get("first", 0), run.get("count", 0)
                if count == 0 or first + count > SLOTS or any(owners[first : first + count]):
                    return None
                owners[first : first + count] = [group] * count
        return GroupMap(message.get("epoch", 0), owners, leaders) if all(owners) else None


class Routes:
    """The newest map that a session of the client has learned. Its epoch only rises, in whatever order maps come."""

    def __init__(self) -> None:
        self.map: Optional[GroupMap] = None

    def learn(self, told: GroupMap) -> None:
        """Of two maps with one epoch only the leaders can differ, and the later one counts."""
        known = self.map
        if known is None or known.epoch < told.epoch or (known.epoch == told.epoch and known.owners == told.owners):
            self.map = told

    @property
    def epoch(self) -> int:
        """0 without a map."""
        return 0 if self.map is None else self.map.epoch

    def group_of_name(self, name: str) -> int:
        return ROOT if self.map is None else self.map.owners[slot_of(name)]

    def group_of(self, entry: Entry) -> int:
        """The group that a request for new locks has to be sent to."""
        if self.map is None or entry.is_best_effort:
            # The efficiency tier is kept by the leader of the root group, whatever the name.
            return ROOT
        if entry.kind != "acquire_all":
            return self.group_of_name(entry.fields["name"])
        names = [member["name"] for member in entry.fields["members"]]
        groups = [self.group_of_name(name) for name in names]
        for name, group in zip(names, groups):
            if group != groups[0]:
                raise _several_groups(names[0], groups[0], name, group)
        # A node refuses an acquire-all without names.
        return groups[0] if groups else ROOT

    def leader_of(self, group: int) -> str:
        return "" if self.map is None else self.map.leaders.get(group, "")


def _several_groups(name: str, group: int, other: str, other_group: int) -> Rejected:
    words = (
        f"'{name}' and '{other}' are in different groups of the cluster ({group} and {other_group}), so no acquire-all"
        f" can take both; put the same tag into their names, such as {{order}}/{name} and {{order}}/{other}"
    )
    return Rejected("several_groups", words)


class Redirect(NamedTuple):
    """When a request that was refused is sent again, to the group that owns the lock by the map of that time."""

    #: Not before the map has this epoch, if that takes no longer than `pause`.
    map_epoch: int = 0
    pause: int = 0


class Redirects:
    """The tries of one request that groups refuse because they do not own its lock.

    What was refused with `wrong_group` was not carried out. So it may be sent to another group, in another session and
    under another id.
    """

    def __init__(self, jitter: random.Random) -> None:
        self._count = 0
        self._backoff = Backoff(jitter)

    def next(self, refusal: Rejected, asked: int, owner: int, epoch: int) -> Optional[Redirect]:
        """The group `asked` has refused. By the map of now, with this epoch, `owner` has the lock.

        `None`: the caller gets the refusal.
        """
        is_elsewhere = refusal.reason == "wrong_group" and not refusal.may_have_happened
        if not is_elsewhere or self._count == _REDIRECTS_MAX:
            return None
        self._count += 1
        if owner != asked:
            return Redirect()
        if epoch < refusal.map_epoch:
            return Redirect(refusal.map_epoch, _MAP_PATIENCE)
        # The client's map is at least as new as that of the group, and still names the group.
        return Redirect(pause=self._backoff.next_delay())


class SessionIds:
    """Draws the ids of a client's sessions: the same id in each group, so that all of them are found by it.

    No group ever sees an id again. So a session that was lost is followed by one with a new id, and a group whose
    session is lost later takes the newest id of the client.
    """

    def __init__(self, draw: Callable[[], str]) -> None:
        self._draw = draw
        #: Sessions run in threads of their own.
        self._lock = threading.Lock()
        self._number = 0
        self._newest = ""

    def of_one_group(self) -> Callable[[], str]:
        """For the sessions in one group, one after the other."""
        used = 0

        def next_id() -> str:
            nonlocal used
            with self._lock:
                if self._number == used:
                    self._newest = self._draw()
                    self._number += 1
                used = self._number
                return self._newest

        return next_id

    def begin_anew_after_fork(self) -> None:
        """No session of a forked child has the id of one of its parent's."""
        self._lock = threading.Lock()
        self._newest = self._draw()
        self._number += 1
