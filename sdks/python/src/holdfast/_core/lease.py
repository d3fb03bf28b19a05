"""How long a client may trust its locks. Times are nanoseconds of the local clock, or milliseconds of logical time.

A request that was sent at S and answered with the logical time L is a sample. With it, a deadline D cannot pass before
`S + (D - L) x 0.98 - 2 ms`. `docs/protocol.md` derives that.

Guards read leases from any thread, without a lock. So each write leaves a bound that is sound at every moment.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional

MS = 1_000_000
#: In hundredths: 1 % for the cluster's clock and 1 % for ours.
MARGIN_PERCENT = 2
#: Logical times are cut to whole milliseconds, two of them.
SLACK = 2 * MS


def safe_end(sent_at: int, span: int) -> int:
    """A span that began after `sent_at` is certainly not over before then."""
    return sent_at + max(0, span * (100 - MARGIN_PERCENT) // 100 - SLACK)


class Sample(NamedTuple):
    sent_at: int
    logical_ms: int

    def quality(self) -> int:
        return self.sent_at * 100 - self.logical_ms * MS * 98

    def safe_end_of(self, deadline_ms: int) -> int:
        return safe_end(self.sent_at, max(0, deadline_ms - self.logical_ms) * MS)


class UnansweredRenewal:
    __slots__ = ("end", "is_overtaken")

    def __init__(self, end: Optional[int]) -> None:
        #: A renewal can shorten a hold when it is applied, not when its answer comes. `None`: it keeps the TTL.
        self.end = end
        #: Another one was answered since this one was sent. Which of the two was applied last is not known.
        self.is_overtaken = False


class HoldLease:
    __slots__ = ("is_best_effort", "own_deadline", "own_span", "unanswered_renewals")

    def __init__(self, is_best_effort: bool, own_deadline: Optional[int]) -> None:
        self.is_best_effort = is_best_effort
        self.own_deadline = own_deadline
        self.own_span = 0
        self.unanswered_renewals: Dict[int, UnansweredRenewal] = {}


class Leases:
    """The leases of one session and of its holds."""

    def __init__(self, sent_at: int, logical_ms: int, ttl: int, linger: int) -> None:
        #: The servers may end the session a TTL after its last answered request, or a linger after its connection.
        self.span = min(ttl, linger)
        self._best = Sample(sent_at, logical_ms)
        self._last_answered_sent_at = sent_at
        self._best_effort: Optional[Sample] = None
        self._holds: Dict[int, HoldLease] = {}

    def answered(self, sent_at: int, logical_ms: int) -> None:
        """A request took effect. Refusals are not reported here."""
        sample = Sample(sent_at, logical_ms)
        if sample.quality() > self._best.quality():
            self._best = sample
        self._last_answered_sent_at = max(self._last_answered_sent_at, sent_at)

    def answered_best_effort(self, sent_at: int, logical_ms: int) -> None:
        """As `answered`, for the efficiency tier: it does not keep the session alive."""
        sample = Sample(sent_at, logical_ms)
        if self._best_effort is None or sample.quality() > self._best_effort.quality():
            self._best_effort = sample

    def best_effort_restarts(self) -> None:
        """Another leader has another clock."""
        self._best_effort = None

    def leader_lost(self) -> List[int]:
        """Ends the holds of the efficiency tier, and returns which they were."""
        ended = [hold for hold, lease in self._holds.items() if lease.is_best_effort]
        for hold in ended:
            del self._holds[hold]
        return ended

    def granted(self, hold: int, deadline_ms: Optional[int], is_best_effort: bool = False) -> None:
        self._insert(hold, HoldLease(is_best_effort, deadline_ms))

    def _insert(self, hold: int, lease: HoldLease) -> None:
        sample = self._sample_for(lease)
        has_span = lease.own_deadline is not None and sample is not None
        lease.own_span = 0
        if has_span:
            assert lease.own_deadline is not None and sample is not None
            lease.own_span = max(0, lease.own_deadline - sample.logical_ms) * MS
        self._holds[hold] = lease

    def renewal_sent(self, hold: int, renewal: int, sent_at: int, ttl: Optional[int]) -> None:
        """Of several sendings the first counts."""
        lease = self._holds.get(hold)
        if lease is not None:
            end = None if ttl is None else safe_end(sent_at, ttl)
            lease.unanswered_renewals.setdefault(renewal, UnansweredRenewal(end))

    def renewed(self, hold: int, renewal: int, deadline_ms: Optional[int]) -> None:
        """The deadline of the renewal that was applied last counts. If that is not known, the earlier one does."""
        lease = self._holds.get(hold)
        if lease is None:
            return
        sent = lease.unanswered_renewals.get(renewal)
        if sent is None or not sent.is_overtaken or lease.own_deadline is None:
            lease.own_deadline = deadline_ms
        elif deadline_ms is not None:
            lease.own_deadline = min(lease.own_deadline, deadline_ms)
        # In this order: a guard that reads meanwhile sees one of the two bounds.
        lease.unanswered_renewals.pop(renewal, None)
        for other in lease.unanswered_renewals.values():
            other.is_overtaken = True
        self._insert(hold, lease)

    def renewal_refused(self, hold: int, renewal: int) -> None:
        """The renewal did not take effect, and will not."""
        lease = self._holds.get(hold)
        if lease is not None:
            lease.unanswered_renewals.pop(renewal, None)

    def ended(self, hold: int) -> None:
        self._holds.pop(hold, None)

    def session_valid_until(self) -> int:
        return safe_end(self._last_answered_sent_at, self.span)

    def valid_until(self, hold: int) -> Optional[int]:
        """The hold certainly lives until then; `None` if there is no such hold."""
        lease = self._holds.get(hold)
        if lease is None:
            return None
        own_end = self._own_end(lease)
        session = self.session_valid_until()
        return session if own_end is None else min(session, own_end)

    def has_own_end(self, hold: int) -> bool:
        lease = self._holds.get(hold)
        return lease is not None and self._own_end(lease) is not None

    def ends_before_session(self, hold: int) -> bool:
        lease = self._holds.get(hold)
        own_end = None if lease is None else self._own_end(lease)
        return own_end is not None and own_end < self.session_valid_until()

    def at_risk_from(self, hold: int) -> Optional[int]:
        """From then on a third of its time is left."""
        lease = self._holds.get(hold)
        if lease is None:
            return None
        at_risk = max(0, self.session_valid_until() - self.span // 3)
        own_end = self._own_end(lease)
        if own_end is not None:
            at_risk = min(at_risk, max(0, own_end - lease.own_span // 3))
        return at_risk

    def heartbeat_due(self) -> int:
        return self._last_answered_sent_at + self.span // 3

    def _own_end(self, lease: HoldLease) -> Optional[int]:
        # A copy: guards read while the session's thread writes.
        renewals = tuple(lease.unanswered_renewals.values())
        ends = [sent.end for sent in renewals if sent.end is not None]
        if lease.own_deadline is not None:
            sample = self._sample_for(lease)
            ends.append(0 if sample is None else sample.safe_end_of(lease.own_deadline))
        return min(ends) if ends else None

    def _sample_for(self, lease: HoldLease) -> Optional[Sample]:
        return self._best_effort if lease.is_best_effort else self._best
