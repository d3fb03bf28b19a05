"""The state machine, with a clock and a node of the test's own."""

from __future__ import annotations

import random
from typing import Any, Callable, Dict, List, Optional

import pytest

from holdfast._core.denials import Denials
from holdfast._core.endpoints import Endpoints
from holdfast._core.groups import ROOT
from holdfast._core.lease import MS
from holdfast._core.requests import Entry
from holdfast._core.session import Session
from holdfast._core.state import Completed, Connect, Disconnect, Ended
from holdfast._wire import decode
from holdfast.errors import Busy, Closed, Lost, QuotaExceeded, Rejected, TimedOut, Unauthenticated, Unavailable

SECOND = 1000 * MS
TTL_MS = 30_000
NO_QUORUM, UNAUTHENTICATED, RATE_LIMITED = 41, 96, 102


class Player:
    """A session, and what came out of it."""

    def __init__(self, endpoints: str = "a:1,b:2", group: int = ROOT) -> None:
        self.now = 100 * SECOND
        ids = (f"{number:032x}" for number in range(1, 100))
        self.session = Session(
            Endpoints(endpoints), {"ttl_ms": TTL_MS, "owner": {}}, lambda: next(ids), random.Random(1), self.now, group
        )
        self.logical_ms = 500_000
        self.completed: Dict[str, Any] = {}
        self.connects: List[str] = []
        self.farewells: List[bool] = []
        self.ended: List[str] = []
        self.calls: Dict[str, int] = {}

    def after(self, span: int) -> "Player":
        self.now += span
        self.logical_ms += span // MS
        return self

    def ask(self, caller: str, kind: str, fields: Optional[dict] = None, **options: Any) -> "Player":
        entry = Entry(kind, fields, caller=caller, waits_until=self.now + 60 * SECOND, **options)
        self.calls[caller] = self.session.handle_request(self.now, entry)
        return self.settle()

    def acquire(self, caller: str, name: str, **fields: Any) -> "Player":
        return self.ask(caller, "acquire", {"name": name, "mode": 1, **fields})

    def settle(self) -> "Player":
        while self.session.outputs:
            output = self.session.outputs.popleft()
            if isinstance(output, Completed):
                self.completed[output.caller] = output.outcome
            elif isinstance(output, Connect):
                self.connects.append(output.address)
            elif isinstance(output, Disconnect):
                self.farewells.append(output.with_farewell)
            elif isinstance(output, Ended):
                self.ended.append(output.reason)
        return self

    def frame(self) -> dict:
        frame = self.session.next_frame(self.now)
        return {} if frame is None else decode("ClientFrame", frame)

    def welcome(self, **fields: Any) -> "Player":
        """The node takes the connection and answers the hello."""
        assert self.session.handle_connected(self.now)
        self.settle()
        (operation,) = self.frame()["operations"]
        ((kind, hello),) = operation.items()
        told = {"ttl_ms": TTL_MS, "linger_ms": TTL_MS, "logical_time_ms": self.logical_ms, "term": 1, **fields}
        return self.hear(answers=[{"request_id": hello["request_id"], kind: told}])

    def hear(self, **frame: Any) -> "Player":
        self.session.handle_frame(self.now, frame)
        return self.settle()

    def answer(self, request_id: int, kind: str, **fields: Any) -> "Player":
        fields.setdefault("logical_time_ms", self.logical_ms)
        return self.hear(answers=[{"request_id": request_id, kind: fields}])

    def fail(self, request_id: int, reason: int, **fields: Any) -> "Player":
        return self.hear(answers=[{"request_id": request_id, "failure": {"reason": reason, **fields}}])

    def grant(self, request_id: int, name: str, token: int, **fields: Any) -> "Player":
        granted = {"name": name, "token": token, "guarantee": 1, "mode": 1, "acquire_request_id": request_id, **fields}
        return self.answer(request_id, "acquire", granted=granted)

    def breaks(self) -> "Player":
        self.session.handle_disconnected(self.now, {"message": "reset", "retryable": True})
        return self.settle()

    def time_passes(self) -> "Player":
        due = self.session.next_timeout()
        assert due is not None
        self.after(max(0, due - self.now))
        self.session.handle_timeout(self.now)
        return self.settle()

    def reconnects(self) -> "Player":
        connects = len(self.connects)
        while len(self.connects) == connects:
            self.time_passes()
        return self.welcome()


def holding(name: str = "a", token: int = 7, **fields: Any) -> Player:
    player = Player().acquire("g", name).welcome()
    (operation,) = player.frame()["operations"]
    return player.grant(operation["acquire"]["request_id"], name, token, **fields)


def test_a_session_is_opened_by_the_first_request_and_sends_nothing_before_its_welcome() -> None:
    player = Player()
    assert player.session.next_timeout() is None
    player.acquire("g", "a")
    assert player.connects == ["a:1"]
    assert player.session.handle_connected(player.now)
    (operation,) = player.frame()["operations"]
    assert operation["open"]["ttl_ms"] == TTL_MS
    assert player.frame() == {}


def test_an_open_that_is_older_than_a_minute_gets_another_id() -> None:
    player = Player().acquire("g", "a", wait_ms=600_000)
    ids = []
    for _ in range(2):
        while player.session._link != "connecting":
            player.time_passes()
        assert player.session.handle_connected(player.now)
        (operation,) = player.frame()["operations"]
        ids.append(operation["open"]["session_id"])
        player.after(40 * SECOND).breaks()
        player.after(21 * SECOND)
    assert ids[0] != ids[1]


def test_an_open_whose_session_has_ended_unseen_is_tried_again_under_another_id() -> None:
    player = Player().acquire("g", "a", wait_ms=600_000)
    assert player.session.handle_connected(player.now)
    (first,) = player.frame()["operations"]
    # The cluster opens the session, the answer is lost, and the TTL passes.
    player.breaks().after(40 * SECOND)
    while player.session._link != "connecting":
        player.time_passes()
    assert player.session.handle_connected(player.now)
    (again,) = player.frame()["operations"]
    assert again["open"]["session_id"] == first["open"]["session_id"]
    player.fail(again["open"]["request_id"], 30, message="the session id was in use before")
    assert "g" not in player.completed
    player.welcome()
    (operation,) = player.frame()["operations"]
    player.grant(operation["acquire"]["request_id"], "a", 7)
    assert player.completed["g"][0].name == "a"
    assert player.session.state.id != first["open"]["session_id"]


def test_a_client_that_every_node_denies_is_told_so() -> None:
    player = Player().acquire("g", "a")
    for _ in range(2):
        player.session.handle_connect_failed(player.now, "no TLS connection", "denied")
        player.settle()
    assert isinstance(player.completed["g"], Unauthenticated)
    assert player.connects == ["a:1", "b:2"]


def test_an_unanswered_request_goes_out_again_under_its_old_id() -> None:
    player = Player().acquire("g", "a").welcome()
    (first,) = player.frame()["operations"]
    player.breaks()
    assert player.farewells == [True]
    player.reconnects()
    (again,) = player.frame()["operations"]
    assert again == first


def test_a_denied_copy_of_a_request_may_have_happened_and_an_acquire_is_cancelled() -> None:
    player = holding().acquire("w", "b", wait_ms=60_000)
    (hold,) = player.completed["g"]
    (operation,) = player.frame()["operations"]
    acquire = operation["acquire"]["request_id"]
    player.ask("t", "transfer", {"to_public_session_id": "00"}, hold=hold)
    (operation,) = player.frame()["operations"]
    player.breaks().reconnects()
    player.frame()
    player.fail(operation["transfer"]["request_id"], 97)
    with pytest.raises(Lost, match="handed"):
        hold.check(player.now)
    player.fail(acquire, 97)
    assert isinstance(player.completed["w"], Rejected) and player.completed["w"].may_have_happened
    (operation,) = player.frame()["operations"]
    assert operation["cancel"]["target"] == acquire


def test_a_resume_has_a_higher_number_than_every_hello_before() -> None:
    player = holding().breaks()
    numbers = []
    for _ in range(3):
        while player.session._link != "connecting":
            player.time_passes()
        assert player.session.handle_connected(player.now)
        player.settle()
        (operation,) = player.frame()["operations"]
        numbers.append(operation["resume"]["request_id"])
        player.breaks()
    assert numbers == sorted(set(numbers))


def test_acknowledgement_stops_before_the_oldest_unanswered_request() -> None:
    player = holding().acquire("x", "x").acquire("y", "y")
    frame = player.frame()
    first, second = (operation["acquire"]["request_id"] for operation in frame["operations"])
    assert frame["acked_through"] == first - 1
    player.answer(second, "acquire", busy={})
    assert isinstance(player.completed["y"], Busy)
    assert player.acquire("z", "z").frame()["acked_through"] == first - 1
    player.answer(first, "acquire", busy={})
    assert player.acquire("w", "w").frame()["acked_through"] == second


def test_a_queued_acquire_does_not_hold_the_acknowledgement_back() -> None:
    player = holding().acquire("x", "x", wait_ms=60_000)
    (operation,) = player.frame()["operations"]
    waiting = operation["acquire"]["request_id"]
    player.hear(notices=[{"queued": {"request_id": waiting, "position": 1}}])
    assert player.acquire("y", "y").frame()["acked_through"] == waiting


def test_the_guard_gives_no_token_past_98_percent_of_the_ttl() -> None:
    player = holding()
    (hold,) = player.completed["g"]
    hold.check(player.now + 29_398 * MS - 1)
    with pytest.raises(Lost, match="no heartbeat"):
        hold.check(player.now + 29_398 * MS)
    # Once lost it stays lost.
    with pytest.raises(Lost):
        hold.check(player.now)


def test_a_heartbeat_goes_out_a_third_of_the_ttl_after_the_last_answered_sending() -> None:
    player = holding()
    sent_at = player.now
    player.time_passes()
    assert player.now == sent_at + 10 * SECOND
    (operation,) = player.frame()["operations"]
    player.after(5 * MS).answer(operation["keep_alive"]["request_id"], "keep_alive")
    (hold,) = player.completed["g"]
    assert hold.valid_until() == sent_at + 10 * SECOND + 29_398 * MS


def test_ten_thousand_locks_cost_one_heartbeat() -> None:
    player = Player()
    locks = 10_000
    for number in range(locks):
        player.acquire(f"g{number}", f"lock-{number}")
    player.welcome()
    while operations := player.frame().get("operations"):
        for operation in operations:
            acquire = operation["acquire"]
            player.grant(acquire["request_id"], acquire["name"], acquire["request_id"])
    for _ in range(3):
        before = player.now
        player.time_passes()
        assert player.now == before + 10 * SECOND
        (operation,) = player.frame()["operations"]
        player.answer(operation["keep_alive"]["request_id"], "keep_alive")
        assert player.frame() == {}
    for caller in ("g0", f"g{locks - 1}"):
        (hold,) = player.completed[caller]
        assert hold.valid_until() > player.now


def test_a_release_does_not_keep_the_session_alive() -> None:
    player = holding()
    (hold,) = player.completed["g"]
    valid_until = hold.valid_until()
    player.acquire("other", "b")
    (operation,) = player.frame()["operations"]
    player.grant(operation["acquire"]["request_id"], "b", 8)
    (other,) = player.completed["other"]
    player.after(2 * SECOND).ask("r", "release", hold=other)
    (operation,) = player.frame()["operations"]
    player.answer(operation["release"]["request_id"], "release", outcome=1)
    assert player.completed["r"] == "released" and hold.valid_until() == valid_until


def test_a_node_that_owes_an_answer_is_left_when_nothing_is_left_to_be_read() -> None:
    player = Player().acquire("g", "a").welcome()
    player.frame()
    player.time_passes()
    player.session.handle_quiet(player.now)
    player.settle()
    assert player.farewells == [True]
    assert player.reconnects().frame()["operations"]


def test_a_caller_that_is_gone_is_cancelled_and_a_grant_is_given_back_once() -> None:
    player = Player().acquire("g", "a", wait_ms=60_000).welcome()
    (operation,) = player.frame()["operations"]
    acquire = operation["acquire"]["request_id"]
    player.session.handle_abandoned(player.now, player.calls["g"])
    (operation,) = player.frame()["operations"]
    assert operation["cancel"]["target"] == acquire
    player.grant(acquire, "a", 9)
    (release,) = player.frame()["operations"]
    assert (release["release"]["token"], release["release"]["acquire_request_id"]) == (9, acquire)
    granted = {"name": "a", "token": 9, "guarantee": 1, "acquire_request_id": acquire}
    player.answer(operation["cancel"]["request_id"], "cancel", already_granted=granted)
    assert player.frame() == {}
    assert player.session.state.holds == {}


def test_a_request_that_never_went_out_is_forgotten_with_its_caller() -> None:
    player = Player().acquire("g", "a")
    player.session.handle_abandoned(player.now, player.calls["g"])
    assert player.welcome().frame() == {}


def test_what_was_granted_and_did_not_reach_its_caller_is_released() -> None:
    player = holding()
    player.session.handle_abandoned(player.now, player.calls["g"])
    (operation,) = player.frame()["operations"]
    assert operation["release"]["token"] == 7


def test_a_lost_session_is_told_to_holders_and_unsent_acquires_go_to_the_next() -> None:
    player = holding()
    (hold,) = player.completed["g"]
    player.acquire("sent", "b").frame()
    player.hear(notices=[{"session_ended": {"reason": 7}}])
    assert hold.loss.reason == "session_killed"
    assert isinstance(player.completed["sent"], Lost)
    player.acquire("next", "c")
    assert player.session.handle_connected(player.now)
    (operation,) = player.frame()["operations"]
    assert operation["open"]["session_id"] == f"{2:032x}"


def test_an_acquire_waits_while_the_lease_is_over_and_goes_to_the_next_session() -> None:
    player = holding().after(30 * SECOND).acquire("late", "b")
    # A caller may see the pause of the process before the timer fires.
    (operation,) = player.frame()["operations"]
    assert player.session.next_frame(player.now) is None, "the acquire was sent under the old session"
    player.fail(operation["keep_alive"]["request_id"], 20)
    assert player.completed["g"][0].loss.reason is not None
    (operation,) = player.welcome().frame()["operations"]
    player.grant(operation["acquire"]["request_id"], "b", 8)
    (hold,) = player.completed["late"]
    hold.check(player.now)


def test_an_acquire_goes_out_when_a_late_heartbeat_was_answered_after_all() -> None:
    player = holding().after(30 * SECOND).acquire("late", "b")
    (operation,) = player.frame()["operations"]
    player.answer(operation["keep_alive"]["request_id"], "keep_alive")
    (operation,) = player.frame()["operations"]
    assert operation["acquire"]["name"] == "b"


def test_losses_after_a_resume_are_told_by_token_and_of_readers_by_their_acquire() -> None:
    player = holding()
    (exclusive,) = player.completed["g"]
    for caller in ("r1", "r2"):
        player.ask(caller, "acquire", {"name": "r", "mode": 2})
        (operation,) = player.frame()["operations"]
        player.grant(operation["acquire"]["request_id"], "r", 8, mode=2)
    (first,), (second,) = player.completed["r1"], player.completed["r2"]
    player.breaks().reconnects()
    player.hear(notices=[{"hold_ended": {"token": 8}}])
    assert first.loss.reason is None and second.loss.reason is None
    player.hear(notices=[{"hold_ended": {"token": 8, "acquire_request_id": first.acquire}}])
    assert first.loss.reason == "ended" and second.loss.reason is None
    player.hear(notices=[{"hold_ended": {"token": 7}}])
    assert exclusive.loss.reason == "ended"


def test_a_node_that_does_not_lead_is_left_for_the_leader_that_it_names() -> None:
    player = Player().acquire("g", "a").welcome()
    (operation,) = player.frame()["operations"]
    player.fail(operation["acquire"]["request_id"], 40, retryable=True, leader="c:3")
    player.reconnects()
    assert player.connects[-1] == "c:3"
    assert player.frame()["operations"] == [operation]


def test_an_overloaded_node_gets_the_request_again_after_a_pause() -> None:
    player = Player().acquire("g", "a").welcome()
    (operation,) = player.frame()["operations"]
    player.fail(operation["acquire"]["request_id"], 42, retryable=True)
    assert player.frame() == {}
    player.time_passes()
    assert player.frame()["operations"] == [operation]


def test_a_refusal_is_told_with_its_reason() -> None:
    player = Player().acquire("g", "a").welcome()
    (operation,) = player.frame()["operations"]
    player.fail(operation["acquire"]["request_id"], 31, message="frozen by an operator")
    error = player.completed["g"]
    assert isinstance(error, Rejected) and error.reason == "frozen" and error.retryable


def test_a_wait_that_ended_unseen_timed_out_only_if_its_time_may_be_over() -> None:
    for wait_ms, expected in ((1_000, TimedOut), (600_000, Lost)):
        player = Player().acquire("g", "a", wait_ms=wait_ms).welcome()
        (operation,) = player.frame()["operations"]
        waiting = operation["acquire"]["request_id"]
        player.hear(notices=[{"queued": {"request_id": waiting, "position": 1}}])
        player.after(2 * SECOND).fail(waiting, 27)
        assert isinstance(player.completed["g"], expected)


def test_a_renewal_that_shortens_a_hold_counts_from_its_sending() -> None:
    player = holding()
    (hold,) = player.completed["g"]
    player.ask("r", "renew", {"ttl_ms": 5_000}, hold=hold)
    assert hold.valid_until() > player.now + 20 * SECOND
    player.frame()
    assert hold.valid_until() == player.now + 4_898 * MS


def test_the_library_renews_a_hold_with_a_ttl_of_its_own() -> None:
    player = Player().ask("g", "acquire", {"name": "a", "mode": 1, "ttl_ms": 3_000}, renews=3 * SECOND).welcome()
    (operation,) = player.frame()["operations"]
    player.grant(operation["acquire"]["request_id"], "a", 7, deadline_ms=player.logical_ms + 3_000)
    granted_at = player.now
    player.time_passes()
    assert player.now == granted_at + SECOND
    (operation,) = player.frame()["operations"]
    assert operation["renew"]["ttl_ms"] == 3_000
    player.answer(operation["renew"]["request_id"], "renew", deadline_ms=player.logical_ms + 3_000)
    (hold,) = player.completed["g"]
    hold.check(player.now + 2_900 * MS)


def test_requests_about_a_hold_wait_for_the_answer_to_its_conversion() -> None:
    player = holding()
    (hold,) = player.completed["g"]
    player.ask("c", "convert", {"mode": 2, "wait_ms": 0}, hold=hold).ask("r", "release", hold=hold)
    (operation,) = player.frame()["operations"]
    granted = {"name": "a", "token": 12, "guarantee": 1, "mode": 2}
    player.answer(operation["convert"]["request_id"], "acquire", granted=granted)
    (operation,) = player.frame()["operations"]
    assert operation["release"]["token"] == 12


def test_a_transfer_that_was_refused_gives_the_token_back() -> None:
    player = holding()
    (hold,) = player.completed["g"]
    player.ask("t", "transfer", {"to_public_session_id": "00"}, hold=hold)
    with pytest.raises(Lost, match="handed"):
        hold.check(player.now)
    (operation,) = player.frame()["operations"]
    player.fail(operation["transfer"]["request_id"], 37)
    hold.check(player.now)


def test_holds_of_the_efficiency_tier_end_with_the_stream() -> None:
    player = holding(guarantee=2)
    (hold,) = player.completed["g"]
    player.breaks()
    assert hold.loss.reason == "leader_unreachable"
    player.reconnects()
    (operation,) = player.frame()["operations"]
    assert operation["release"]["tier"] == 2


def test_nodes_that_refuse_the_connection_are_reported_after_a_second() -> None:
    player = Player().acquire("g", "a")
    while "g" not in player.completed:
        if player.session._link == "connecting":
            player.session.handle_connect_failed(player.now, "refused", "refused")
            player.settle()
        else:
            player.time_passes()
    assert isinstance(player.completed["g"], Unavailable)
    assert player.now - 100 * SECOND < 2 * SECOND


def test_the_circuit_opens_after_three_seconds_and_closes_with_the_first_node_that_serves() -> None:
    player = holding().breaks()
    while player.session.breaker.is_closed:
        if player.session._link == "connecting":
            player.after(300 * MS).session.handle_connect_failed(player.now, "no route", "not_made")
            player.settle()
        else:
            player.time_passes()
    player.reconnects()
    assert player.session.breaker.is_closed


def test_a_caller_is_let_go_when_its_time_is_over() -> None:
    player = Player().acquire("g", "a", wait_ms=600_000).welcome()
    (operation,) = player.frame()["operations"]
    player.hear(notices=[{"queued": {"request_id": operation["acquire"]["request_id"], "position": 1}}])
    player.after(60 * SECOND).session.handle_timeout(player.now)
    error = player.settle().completed["g"]
    assert isinstance(error, Unavailable) and error.may_have_happened


def test_a_closed_session_takes_nothing_more() -> None:
    player = holding()
    (hold,) = player.completed["g"]
    player.session.handle_close(player.now, "close")
    (operation,) = player.frame()["operations"]
    player.answer(operation["close"]["request_id"], "close")
    assert player.completed["close"] is None
    assert hold.loss.reason == "session_closed"
    assert isinstance(player.acquire("late", "b").completed["late"], Closed)


def dials_again(player: Player) -> str:
    while player.session._link != "connecting":
        player.time_passes()
    return player.connects[-1]


def refuses_resume(player: Player, reason: int, **fields: Any) -> None:
    assert player.session.handle_connected(player.now)
    player.settle()
    (operation,) = player.frame()["operations"]
    player.fail(operation["resume"]["request_id"], reason, **fields)


def denies_resume(player: Player, **fields: Any) -> None:
    refuses_resume(player, UNAUTHENTICATED, message="the token is not known", **fields)


PATIENCE = 5 * SECOND


def denied_by_all(player: Player) -> None:
    dials_again(player)
    denies_resume(player)


def denied_by_leader(leader: str) -> Callable[[Player], None]:
    """The other node may not have applied yet what makes the token known."""

    def deny(player: Player) -> None:
        if dials_again(player) == leader:
            denies_resume(player)
        else:
            denies_resume(player, retryable=True, leader=leader)

    return deny


def denied_for(player: Player, deny: Callable[[Player], None]) -> int:
    """Until the client gives its session up, or for 7 s."""
    (hold,) = player.completed["g"]
    deny(player)
    began = player.now
    while player.ended == [] and player.now - began < 7 * SECOND:
        hold.check(player.now)
        deny(player)
    return player.now - began


def gives_up(player: Player, deny: Callable[[Player], None]) -> bool:
    span = denied_for(player, deny)
    if player.ended == []:
        return False
    assert player.ended == ["denied"] and PATIENCE <= span <= PATIENCE + SECOND
    (hold,) = player.completed["g"]
    with pytest.raises(Lost, match="no node accepts"):
        hold.check(player.now)
    return True


def test_a_session_that_all_nodes_deny_for_the_patience_is_lost() -> None:
    player = holding().acquire("w", "b", wait_ms=60_000)
    player.frame()
    (hold,) = player.completed["g"]
    player.breaks().ask("r", "renew", {"ttl_ms": 1_000}, hold=hold)
    assert gives_up(player, denied_by_all)
    assert isinstance(player.completed["w"], Unauthenticated) and player.completed["w"].may_have_happened
    assert isinstance(player.completed["r"], Unauthenticated) and not player.completed["r"].may_have_happened
    assert player.session.breaker.is_closed
    # A new credential opens a new session.
    player.acquire("next", "a").welcome()


def test_a_credential_that_is_replaced_within_the_patience_keeps_the_locks() -> None:
    player = holding().breaks()
    (hold,) = player.completed["g"]
    denied_by_all(player)
    began = player.now
    while player.now - began < PATIENCE - SECOND:
        denied_by_all(player)
    player.reconnects()
    hold.check(player.now)
    assert player.ended == []


def test_a_short_ttl_makes_the_patience_short() -> None:
    denials, denial = Denials(6 * SECOND), {"reason": UNAUTHENTICATED}
    told = [denials.note(at * SECOND // 2, "a:1", denial, ["a:1"]) for at in range(5)]
    assert told == [False, False, False, False, True]


def test_a_node_that_cannot_be_reached_does_not_keep_a_denied_session() -> None:
    player = holding().breaks()

    def deny(player: Player) -> None:
        while dials_again(player) == "b:2":
            player.session.handle_connect_failed(player.now, "no route to the host", "not_made")
            player.settle()
        denies_resume(player)

    assert gives_up(player, deny)


@pytest.mark.parametrize("leader", ["a:1", "b:2"])
def test_it_is_enough_that_the_leader_is_sure_of_its_denial(leader: str) -> None:
    assert gives_up(holding().breaks(), denied_by_leader(leader))


def test_a_session_is_not_given_up_while_no_node_is_sure_of_its_denial() -> None:
    player = holding().breaks()
    # The named leader is none of the nodes that the client knows, so its word does not count either.
    assert not gives_up(player, denied_by_leader("x:9"))
    assert set(player.connects) == {"a:1", "b:2", "x:9"}


def test_a_node_that_answers_a_resume_otherwise_has_not_denied_it() -> None:
    player = holding().breaks()

    def answer(player: Player) -> None:
        if dials_again(player) == "b:2":
            refuses_resume(player, NO_QUORUM, retryable=True)
        else:
            denies_resume(player)

    assert not gives_up(player, answer)


def test_a_denial_that_is_older_than_the_patience_does_not_count() -> None:
    player = holding().breaks()
    (hold,) = player.completed["g"]
    denied_by_all(player)
    dials_again(player)
    player.after(PATIENCE + MS)
    denies_resume(player)
    hold.check(player.now)
    assert player.ended == []


def test_a_node_that_lets_the_client_resume_ends_the_count_of_denials() -> None:
    player = holding().breaks()
    (hold,) = player.completed["g"]
    denied_by_all(player)
    began = player.now
    player.reconnects().breaks()
    dials_again(player)
    player.after(began + PATIENCE - player.now)
    denies_resume(player)
    hold.check(player.now)
    assert player.ended == []


def test_a_caller_that_does_not_wait_until_the_node_takes_the_request_is_told_at_once() -> None:
    player = holding().acquire("w", "b")
    (operation,) = player.frame()["operations"]
    # It waits for a minute.
    player.fail(operation["acquire"]["request_id"], RATE_LIMITED, retryable=True, retry_after_ms=20_000)
    assert "w" not in player.completed
    sent_back = player.now
    while not (again := player.frame().get("operations")):
        player.time_passes()
    assert player.now - sent_back >= 10 * SECOND
    while "acquire" not in again[0]:
        player.answer(again[0]["keep_alive"]["request_id"], "keep_alive")
        while not (again := player.frame().get("operations")):
            player.time_passes()
    assert player.now - sent_back >= 20 * SECOND
    player.fail(again[0]["acquire"]["request_id"], RATE_LIMITED, retryable=True, retry_after_ms=59_900)
    error = player.completed["w"]
    assert isinstance(error, QuotaExceeded) and error.retry_after == 59.9 and not error.may_have_happened


def test_a_request_that_may_have_been_carried_out_is_sent_again_however_long_that_takes() -> None:
    player = holding().acquire("w", "b")
    (operation,) = player.frame()["operations"]
    player.breaks().reconnects()
    player.frame()
    player.fail(operation["acquire"]["request_id"], RATE_LIMITED, retryable=True, retry_after_ms=70_000)
    assert "w" not in player.completed


def test_a_session_that_may_not_be_opened_yet_is_opened_when_the_node_said() -> None:
    player = Player("a:1").acquire("g", "a")
    assert player.session.handle_connected(player.now)
    (operation,) = player.frame()["operations"]
    player.fail(operation["open"]["request_id"], RATE_LIMITED, retryable=True, retry_after_ms=2_000)
    refused = player.now
    player.time_passes()
    assert player.connects == ["a:1", "a:1"] and 2 * SECOND < player.now - refused < 3 * SECOND


def test_a_request_that_failed_at_once_takes_no_request_of_the_session_with_it() -> None:
    player = Player().acquire("a", "x", wait_ms=60_000).welcome()
    (acquire,) = player.frame()["operations"]
    player.session.handle_disconnected(player.now, {"message": "gone", "retryable": True})
    player.session.handle_abandoned(player.now, player.calls["a"])
    # A call that the open circuit fails was never taken in, and has no number.
    player.session.handle_abandoned(player.now, 0)
    player.after(SECOND).session.handle_timeout(player.now)
    player.settle().welcome()
    asked = [operation for operation in player.frame()["operations"] if "cancel" in operation]
    assert [it["cancel"]["target"] for it in asked] == [acquire["acquire"]["request_id"]]


@pytest.mark.parametrize("group", [1, 2])
def test_only_a_cluster_that_was_never_there_is_given_up_when_all_nodes_refuse(group: int) -> None:
    player = Player("a:1", group).acquire("a", "x", wait_ms=60_000)
    for _ in range(100):
        player.session.handle_connect_failed(player.now, "connection refused", "refused")
        player.after(SECOND // 2).session.handle_timeout(player.now)
        player.settle()
    assert ("a" in player.completed) == (group == 1)


def test_callers_who_wait_for_a_session_wait_as_long_as_each_of_them_wants_to() -> None:
    player = Player()
    for caller, seconds in (("short", 1), ("long", 60)):
        player.session.handle_open(player.now, caller, player.now + seconds * SECOND)
    player.after(2 * SECOND).session.handle_timeout(player.now)
    player.settle()
    assert list(player.completed) == ["short"] and isinstance(player.completed["short"], Unavailable)
    player.welcome()
    assert player.completed["long"] is None
