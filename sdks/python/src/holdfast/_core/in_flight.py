"""The requests of a session that have no answer yet."""

from __future__ import annotations

from collections import OrderedDict
from typing import Callable, Dict, Iterator, List, Optional

from .requests import Entry


class InFlight:
    """Ids start at 1 and rise by one. `acked_through` tells the servers which answers they may drop.

    An acquire that is known to wait counts as answered: the servers find it by its wait, and later by its hold.
    """

    def __init__(self) -> None:
        self.last_id = 0
        self._row: OrderedDict[int, Entry] = OrderedDict()
        self._waiting: Dict[int, Entry] = {}
        self._staged: Dict[int, None] = {}
        #: No request should have been answered before then. It may be too early, and is set right when it is reached.
        self.answers_due_from: Optional[int] = None

    def reserve_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def stage(self, entry: Entry) -> int:
        entry_id = self.park(entry)
        self.stage_again(entry_id)
        return entry_id

    def park(self, entry: Entry) -> int:
        """A new request that must not go out yet."""
        entry_id = self.reserve_id()
        entry.is_parked = True
        self._row[entry_id] = entry
        return entry_id

    def stage_again(self, entry_id: int) -> None:
        entry = self.get(entry_id)
        if entry is not None:
            entry.is_parked = False
            entry.answer_due = None
            self._staged[entry_id] = None

    def stage_all_again(self) -> None:
        self.answers_due_from = None
        entries = {**self._row, **self._waiting}
        self._staged = {entry_id: None for entry_id in sorted(entries) if not entries[entry_id].is_parked}
        for entry_id in self._staged:
            entry = entries[entry_id]
            entry.answer_due = None
            entry.was_sent_before |= entry.first_sent_at is not None

    def take_staged(self, names_max: int, may_go: Callable[[Entry], bool]) -> List[int]:
        """The next of those that are staged and may go, in the order of their ids, as far as their names go."""
        taken: List[int] = []
        names = 0
        for entry_id in sorted(self._staged):
            entry = self.get(entry_id)
            if entry is not None and not may_go(entry):
                continue
            names += entry.name_count() if entry is not None else 0
            if names > names_max and taken:
                break
            taken.append(entry_id)
        for entry_id in taken:
            del self._staged[entry_id]
        return [entry_id for entry_id in taken if self.get(entry_id) is not None]

    @property
    def is_empty(self) -> bool:
        return not self._row and not self._waiting

    @property
    def has_staged(self) -> bool:
        return bool(self._staged)

    def mark_sent(self, entry_id: int, now: int, answer_due: int) -> None:
        entry = self.get(entry_id)
        if entry is not None:
            if entry.first_sent_at is None:
                entry.first_sent_at = now
            entry.answer_due = answer_due
            due = self.answers_due_from
            self.answers_due_from = answer_due if due is None else min(due, answer_due)

    def mark_waiting(self, entry_id: int) -> None:
        entry = self._row.pop(entry_id, None)
        if entry is not None:
            self._waiting[entry_id] = entry

    def is_waiting(self, entry_id: int) -> bool:
        return entry_id in self._waiting

    def settle(self, entry_id: int) -> Optional[Entry]:
        """Removes a request that was answered, or whose answer is no longer needed."""
        self._staged.pop(entry_id, None)
        entry = self._row.pop(entry_id, None)
        if entry is None:
            entry = self._waiting.pop(entry_id, None)
        if self.is_empty:
            self.answers_due_from = None
        return entry

    def take_out(self, is_meant: Callable[[Entry], bool]) -> List[Entry]:
        ids = [entry_id for entry_id, entry in self.items() if is_meant(entry)]
        return [entry for entry in map(self.settle, ids) if entry is not None]

    def get(self, entry_id: int) -> Optional[Entry]:
        entry = self._row.get(entry_id)
        return self._waiting.get(entry_id) if entry is None else entry

    def items(self) -> Iterator["tuple[int, Entry]"]:
        return iter([*self._waiting.items(), *self._row.items()])

    def find_call(self, call: int) -> Optional[int]:
        entry = self.get(call)
        if entry is not None and entry.call == call:
            return call
        return next((entry_id for entry_id, entry in self.items() if entry.call == call), None)

    def is_answer_overdue(self, now: int) -> bool:
        if self.answers_due_from is not None and self.answers_due_from <= now:
            due = [entry.answer_due for _, entry in self.items() if entry.answer_due is not None]
            self.answers_due_from = min(due) if due else None
        return self.answers_due_from is not None and self.answers_due_from <= now

    def acked_through(self) -> int:
        oldest = next(iter(self._row), None)
        return self.last_id if oldest is None else oldest - 1
