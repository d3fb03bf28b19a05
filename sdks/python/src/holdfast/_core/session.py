"""A client's session with the cluster, over connections that break and sessions that are lost.

It does nothing by itself. Its driver owns the socket, the clock and the callers. After each input it carries out
`outputs`, then sends `next_frame` until there is none, then sleeps until `next_timeout` or the next input.
"""

from __future__ import annotations

import random
from typing import Any, Callable, Deque, List, Optional

from .._wire import Message
from ..errors import Closed, HoldfastError
from . import answers
from .answers import Verdict
from .denials import Denials
from .endpoints import Endpoints
from .groups import ROOT
from .lease import MS
from .pacing import Breaker
from .requests import Entry
from .state import Connect, Disconnect, Ended, Hello, State

#: Within this time a node has to answer the hello, or the next one is asked.
_HELLO_TIMEOUT = 1_000 * MS
#: One command under one lock is served before it would pay to move to the leader.
_SETTLING_TIME = 250 * MS
#: A leader that takes the connection and then says nothing costs a second or two.
_APPROACH_SPAN_MIN = 6_000 * MS
#: Until a node knows the newest map, another welcome tells nothing new.
_MAP_FETCH_INTERVAL = 1_000 * MS
#: A cluster all of whose nodes refuse the connection is not there, and will hardly come.
_REFUSED_PATIENCE = 1_000 * MS
_CLOSING_PATIENCE = 2_000 * MS
#: The cluster remembers the ids of ended sessions for two minutes. An open that is older gets a new id.
_OPEN_FOR = 60_000 * MS
_UNAUTHENTICATED = 96


class Session:
    def __init__(
        self,
        endpoints: Endpoints,
        settings: Message,
        new_session_id: Callable[[], str],
        jitter: random.Random,
        now: int,
        group: int = ROOT,
    ) -> None:
        self.endpoints = endpoints
        self.breaker = Breaker()
        self._settings = settings
        self._new_session_id = new_session_id
        ttl_ms = settings["ttl_ms"]
        self.span = min(ttl_ms, settings.get("linger_ms") or ttl_ms) * MS
        self.state = State(new_session_id(), self.span, jitter, group)
        #: idle, paused, connecting, greeting, open, finished
        self._link = "idle"
        self._address = ""
        self._until = 0
        self._hello: Optional[Hello] = None
        self._is_hello_unsent = False
        self._is_approach = False
        #: When to take another stream: to the leader, or to the same node for its welcome.
        self._approach_at: Optional[int] = None
        self._approach_to = ""
        self._is_approaching = False
        #: When the session last took a new stream to learn a newer map.
        self._map_fetched_at: Optional[int] = None
        self._blocked_since: Optional[int] = None
        #: A leader that could be connected to, and yet did not serve.
        self._unhelpful: Optional[str] = None
        #: Callers who wait for a session, and ask for nothing else.
        self._openers: List[Entry] = []
        #: A cluster that has told of another group was there.
        self._was_ever_open = group != ROOT
        self._denials = Denials(ttl_ms * MS)
        #: When the first try began, as long as all that the nodes ever did was to refuse the connection.
        self._refused_since: Optional[int] = None if self._was_ever_open else now
        self._closing_until: Optional[int] = None

    @property
    def outputs(self) -> Deque[Any]:
        return self.state.outputs

    @property
    def is_finished(self) -> bool:
        return self._link == "finished"

    @property
    def is_owed_an_answer(self) -> bool:
        """Whether the node that serves the session has not answered something."""
        return self._link == "open" and not self.state.requests.is_empty

    # What the program wants.

    def handle_open(self, now: int, caller: Any, waits_until: int) -> None:
        """Opens a session now, and not with the first request."""
        entry = Entry("open", caller=caller, waits_until=waits_until)
        if self.is_finished or self._closing_until is not None:
            self.state.complete(entry, Closed())
        elif self.state.is_open:
            self.state.complete(entry, None)
        else:
            self._openers.append(entry)
            self._begin_first(now)
            self._connect_if_needed(now)

    def handle_request(self, now: int, entry: Entry) -> int:
        """Returns the number by which `handle_abandoned` knows it."""
        if self.is_finished or self._closing_until is not None:
            self.state.complete(entry, Closed())
            return 0
        self._begin_first(now)
        call = self.state.ask(entry)
        self._connect_if_needed(now)
        return call

    def handle_abandoned(self, now: int, call: int, caller: Any = None) -> None:
        """The caller of a request, or one who only waits for a session, is gone."""
        if not self.is_finished:
            self._openers = [entry for entry in self._openers if caller is None or entry.caller is not caller]
            self.state.abandon(call)
            self._connect_if_needed(now)

    def handle_close(self, now: int, caller: Any) -> None:
        entry = Entry("close", caller=caller, waits_until=now + _CLOSING_PATIENCE)
        if self.is_finished or not self.state.is_open:
            self.state.complete(entry, None)
            self._finish()
            return
        if self._closing_until is None:
            self._closing_until = now + _CLOSING_PATIENCE
            self._approach_at = None
            # What is held when a session is closed is given back by that.
            self.state.requests.take_out(lambda it: it.kind == "release" and it.caller is None)
        self.state.ask(entry)

    def _begin_first(self, now: int) -> None:
        if self._link == "idle" and not self._was_ever_open:
            self._refused_since = now

    def handle_failure(self) -> None:
        """The driver cannot go on. Holders and callers are told."""
        self._finish()

    # What the network did.

    def handle_connected(self, now: int) -> bool:
        """False if the connection is not wanted any more."""
        if self._link == "connecting":
            self._is_approach = False
        elif self._link == "open" and self._is_approaching:
            self.state.stream_broke()
            self._disconnect(with_farewell=True)
            self.breaker.handle_try(now)
            self._address, self._is_approach = self._approach_to, True
            self._is_approaching = False
        else:
            return False
        opened_at = self.state.open_sent_at
        if not self.state.is_open and opened_at is not None and now - opened_at > _OPEN_FOR:
            self.state.id, self.state.open_sent_at = self._new_session_id(), None
        self._hello = self.state.hello(self._settings, now)
        self._is_hello_unsent = True
        self._link, self._until = "greeting", now + _HELLO_TIMEOUT
        return True

    def handle_connect_failed(self, now: int, words: str, contact: str) -> None:
        """`contact` tells how far it got: not_made, refused (nothing listens there), or denied."""
        if self._link == "connecting":
            self.endpoints.could_not_reach(self._address)
            # If it was denied, another node may accept it. If none does, there will be no session.
            is_denied = contact == "denied"
            failure = {"message": words, "retryable": not is_denied, "reason": _UNAUTHENTICATED if is_denied else 0}
            self._on_no_stream(now, contact, failure)
        elif self._link == "open":
            # It is served where it is.
            self._is_approaching = False

    def handle_frame(self, now: int, frame: Message) -> None:
        if self._link == "greeting":
            assert self._hello is not None
            request_id = self._hello.request_id
            told = frame.get("answers", [])
            hello: Message = next((it for it in told if it.get("request_id", 0) == request_id), {})
            if "failure" in hello:
                failure = self.state.heard_failure(hello["failure"])
                return self._on_hello_failed(now, failure, with_farewell=False)
            if "open" not in hello and "resume" not in hello:
                return self._on_hello_unanswered(now, "the first frame does not answer the hello")
            self._on_welcome(now, hello.get("open") or hello["resume"])
            frame["answers"] = [it for it in told if it is not hello]
        if self._link != "open":
            return None
        verdict = answers.on_frame(self.state, now, frame)
        if self.state.is_map_old:
            self.state.is_map_old = False
            self._fetch_map(now)
        if self.state.endpoints_told is not None:
            self.endpoints.learn(self.state.endpoints_told)
            self.state.endpoints_told = None
        return self._act_on(now, verdict)

    def handle_disconnected(self, now: int, failure: Message) -> None:
        failure = self.state.heard_failure(failure)
        if self._link == "greeting":
            self._on_hello_failed(now, failure, with_farewell=False)
        elif self._link == "open" and answers.reason_of(failure) == "unknown_session":
            self._replace_session(now, "session_expired")
        elif self._link == "open":
            self._leave_node(now, failure.get("leader", ""), failure.get("message", ""))

    def handle_blocked(self, now: int) -> None:
        """The connection has no room for the next frame."""
        if self._link == "open" and self._blocked_since is None:
            self._blocked_since = now

    # Time that passed.

    def handle_timeout(self, now: int) -> None:
        if self._closing_until is not None and self._closing_until <= now:
            return self._finish()
        overdue = [entry for entry in self._openers if entry.waits_until <= now]
        self._openers = [entry for entry in self._openers if entry.waits_until > now]
        for entry in overdue:
            self.state.complete(entry, self.state.unavailable(True))
        self.state.let_callers_go(now)
        self.state.check_watched(now)
        if self._link == "paused" and self._until <= now:
            self._link = "idle"
            self._connect_if_needed(now)
        elif self._link == "greeting" and self._until <= now:
            self._on_hello_unanswered(now, "no answer to the hello within a second")
        elif self._link == "open":
            if self._approach_at is not None and self._approach_at <= now:
                self._approach_at = None
                self._is_approaching = True
                self.outputs.append(Connect(self._approach_to))
            self.state.stage_due(now)
            # Only so that it is known when the next answer is due.
            self.state.requests.is_answer_overdue(now)
        return None

    def handle_quiet(self, now: int) -> None:
        """Nothing that arrived is left to be read: a node that owes an answer is left."""
        if self._link != "open":
            return
        if self.state.requests.is_answer_overdue(now):
            self._leave_node(now, "", "the node does not answer")
        elif self._blocked_since is not None and self._blocked_since + self.state.answer_patience <= now:
            self._leave_node(now, "", "the node does not read")

    def next_timeout(self) -> Optional[int]:
        due = [self.state.callers_wait_until, self.state.watched_until, self._closing_until]
        due += [entry.waits_until for entry in self._openers]
        if self._link in ("paused", "greeting"):
            due.append(self._until)
        elif self._link == "open":
            due += [self.state.next_due(), self._approach_at]
            if self._blocked_since is not None:
                due.append(self._blocked_since + self.state.answer_patience)
        known = [it for it in due if it is not None]
        return min(known) if known else None

    def next_frame(self, now: int) -> Optional[bytes]:
        """To be called as long as the connection has room."""
        if self._link == "greeting" and self._is_hello_unsent:
            assert self._hello is not None
            self._is_hello_unsent = False
            return self._hello.frame
        if self._link == "open":
            self._blocked_since = None
            return self.state.next_frame(now)
        return None

    @property
    def has_frame(self) -> bool:
        """Whether there is something to send. `next_frame` may hold it back."""
        if self._link == "greeting":
            return self._is_hello_unsent
        return self._link == "open" and self.state.requests.has_staged

    # Which node serves the session.

    def _connect_if_needed(self, now: int) -> None:
        is_wanted = bool(self._openers) or self.state.requests.has_staged
        is_needed = self.state.is_open or is_wanted or not self.breaker.is_closed
        if self._link == "idle" and is_needed:
            self.breaker.handle_try(now)
            self._address = self.endpoints.next_address()
            self._link = "connecting"
            self.outputs.append(Connect(self._address))

    def _on_welcome(self, now: int, welcome: Message) -> None:
        assert self._hello is not None
        self.state.backoff.reset()
        self.breaker.handle_success()
        self._refused_since = None
        self._was_ever_open = True
        self._denials.clear()
        self.endpoints.reached()
        if self._unhelpful == self._address:
            self._unhelpful = None
        self.state.errors.clear()
        self.state.welcomed(self._hello.sent_at, welcome)
        self.state.learn_map(welcome)
        self.state.is_map_old = False
        self._link, self._blocked_since = "open", None
        leader = self._approach_to = welcome.get("leader", "")
        self._is_approaching = False
        is_better = (
            leader != self._address
            and self.endpoints.may_follow(leader)
            and leader != self._unhelpful
            and self.span >= _APPROACH_SPAN_MIN
            and self._closing_until is None
        )
        self._approach_at = now + _SETTLING_TIME if is_better else None
        self.endpoints.learn(welcome.get("endpoints", []))
        self._tell_openers(None)

    def _fetch_map(self, now: int) -> None:
        """A group refused by a newer map, which comes with another welcome. The present stream serves until then."""
        if self._link != "open" or self._is_approaching or self._closing_until is not None:
            return
        since = self._map_fetched_at
        at = now if since is None else max(now, since + _MAP_FETCH_INTERVAL)
        if self._approach_at is None:
            self._approach_to = self._address
        elif self._approach_at <= at:
            # That stream brings a welcome, too.
            return
        self._map_fetched_at = self._approach_at = at

    def _tell_openers(self, outcome: Any) -> None:
        openers, self._openers = self._openers, []
        for entry in openers:
            self.state.complete(entry, outcome)

    def _on_hello_unanswered(self, now: int, words: str) -> None:
        failure = {"message": words, "retryable": True, "may_have_happened": True}
        self._on_hello_failed(now, failure, with_farewell=True)

    def _on_hello_failed(self, now: int, failure: Message, with_farewell: bool) -> None:
        self._disconnect(with_farewell)
        if self._is_approach:
            self._unhelpful = self._address
        self.endpoints.reached()
        known = self.endpoints.addresses
        if self.state.is_open and self._denials.note(now, self._address, failure, known):
            self._on_denied(now, failure)
        else:
            self._on_no_stream(now, "made", failure)

    def _on_denied(self, now: int, failure: Message) -> None:
        """What becomes of the session in the cluster is not known: the client can neither renew nor end it."""
        self.breaker.handle_success()
        for entry in self.state.requests.take_out(lambda _: True):
            was_sent = entry.first_sent_at is not None
            self.state.complete(entry, answers.rejected({**failure, "may_have_happened": was_sent}))
        self._replace_session(now, "denied", failure.get("message", ""))

    def _on_no_stream(self, now: int, contact: str, failure: Message) -> None:
        self._link = "idle"
        self.state.leader_lost("leader_unreachable")
        # The node served if it said what becomes of the session.
        if self.state.is_open:
            is_verdict = answers.reason_of(failure) == "unknown_session"
        else:
            is_verdict = not failure.get("retryable", False)
        if is_verdict:
            self.breaker.handle_success()
        else:
            self.breaker.handle_failure(now)
        self.state.errors[self._address] = failure.get("message", "")
        if contact != "refused":
            self._refused_since = None
        has_tried_all = self.endpoints.has_tried_all()
        since = self._refused_since
        if since is not None and now - since >= _REFUSED_PATIENCE and has_tried_all:
            # A client that has no session yet does not wait for nodes that are not there.
            self._give_up(self.state.unavailable(False))
            self._refused_since = now
        elif contact != "made" and not has_tried_all:
            # A node that is gone is no reason to keep the next one waiting.
            self._connect_if_needed(now)
        elif self.state.is_open and is_verdict:
            self._replace_session(now, "session_expired")
        elif answers.reason_of(failure) == "session_exists":
            # An earlier try opened it, and its time is over by now. Nothing was asked in it.
            self._replace_session(now, "session_expired")
        elif is_verdict:
            # The cluster refuses a session with these settings. The limits may change.
            self._give_up(answers.rejected(failure))
            self._replace_session(now, "ended")
        else:
            self.endpoints.follow_leader(failure.get("leader", ""))
            self._pause(now, answers.retry_after(failure))

    def _give_up(self, error: HoldfastError) -> None:
        self._tell_openers(error)
        for entry in self.state.requests.take_out(lambda _: True):
            self.state.complete(entry, error)

    def _act_on(self, now: int, verdict: Verdict) -> None:
        if verdict.kind == "closed":
            self._finish()
        elif verdict.kind == "session_lost":
            self._replace_session(now, verdict.words)
        elif verdict.kind == "move":
            self._leave_node(now, verdict.leader, verdict.words)

    def _leave_node(self, now: int, leader: str, words: str) -> None:
        """The node does not serve the session any more, and another has to."""
        self.state.errors[self._address] = words
        self.endpoints.follow_leader(leader)
        self.state.stream_broke()
        self.state.leader_lost("leader_unreachable")
        self._disconnect(with_farewell=self._closing_until is None)
        # Not at once: the next node may not know yet that it leads.
        self._pause(now)

    def _replace_session(self, now: int, reason: str, words: str = "") -> None:
        self._disconnect(with_farewell=False)
        self._denials.clear()
        if self.state.is_open:
            self.outputs.append(Ended(reason, words))
        is_wanted = self._closing_until is None
        self.state.end(reason, is_wanted)
        if not is_wanted:
            return self._finish()
        self.state.id = self._new_session_id()
        self._link = "idle"
        return self._connect_if_needed(now)

    def _pause(self, now: int, told: int = 0) -> None:
        """Not so long that it would matter to a short lease. Without a session, as long as the node has told."""
        delay = told + self.state.backoff.next_delay()
        self._link = "paused"
        self._until = now + (delay if told and not self.state.is_open else min(delay, self.span // 20))

    def _disconnect(self, with_farewell: bool) -> None:
        self._approach_at, self._is_approaching = None, False
        self.outputs.append(Disconnect(with_farewell))

    def _finish(self) -> None:
        if not self.is_finished:
            # A close without an answer stays without one: its caller must not take it for done.
            for entry in self.state.requests.take_out(lambda it: it.kind == "close"):
                self.state.complete(entry, self.state.unavailable(True))
            self._tell_openers(Closed())
            self.state.end("session_closed", False)
            self._disconnect(with_farewell=False)
            self._link = "finished"
