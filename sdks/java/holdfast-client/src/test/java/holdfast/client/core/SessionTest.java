package holdfast.client.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import holdfast.client.errors.HoldfastException;
import holdfast.client.errors.LossReason;
import holdfast.client.errors.LostException;
import holdfast.client.errors.PermissionDeniedException;
import holdfast.client.errors.QuotaExceededException;
import holdfast.client.errors.TimedOutException;
import holdfast.client.errors.UnauthenticatedException;
import holdfast.client.errors.UnavailableException;
import holdfast.v1.AcquireRequest;
import holdfast.v1.AcquireResponse;
import holdfast.v1.Answer;
import holdfast.v1.CancelResponse;
import holdfast.v1.ClientFrame;
import holdfast.v1.Failure;
import holdfast.v1.Grant;
import holdfast.v1.Guarantee;
import holdfast.v1.KeepAliveResponse;
import holdfast.v1.Mode;
import holdfast.v1.Notice;
import holdfast.v1.OpenSessionRequest;
import holdfast.v1.OpenSessionResponse;
import holdfast.v1.Operation;
import holdfast.v1.Operation.KindCase;
import holdfast.v1.Queued;
import holdfast.v1.Reason;
import holdfast.v1.ServerFrame;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.SplittableRandom;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** The session without I/O: the test is the network, and owns the time. */
class SessionTest {
  private static final long MS = Leases.MS;
  private static final long FOR_EVER = Long.MAX_VALUE / 2;
  private static final long TTL_MS = 3_000;
  private static final long LONG_TTL_MS = 30_000;

  private final List<String> connects = new ArrayList<>();
  private final List<Boolean> farewells = new ArrayList<>();
  private final List<LossReason> ended = new ArrayList<>();
  private final Map<Object, Outcome> outcomes = new HashMap<>();
  private long now = 1_000 * MS;
  private long ttlMs = TTL_MS;
  private int sessions;
  private Session session;

  @BeforeEach
  void openSession() {
    session = newSession();
    session.handleOpen(now, "open", FOR_EVER);
    connected();
    assertNull(outcome("open").error());
  }

  private Session newSession() {
    OpenSessionRequest settings = OpenSessionRequest.newBuilder().setTtlMs(ttlMs).build();
    State state = new State(Session.spanOf(settings), new SplittableRandom(1));
    Endpoints endpoints = new Endpoints("a:1,b:2", true);
    return new Session(endpoints, settings, () -> "session-" + ++sessions, state, now);
  }

  private void pump() {
    for (Output output = session.nextOutput(); output != null; output = session.nextOutput()) {
      if (output instanceof Output.Connect connect) {
        connects.add(connect.address());
      } else if (output instanceof Output.Disconnect disconnect) {
        farewells.add(disconnect.withFarewell());
      } else if (output instanceof Output.Completed completed) {
        outcomes.put(completed.caller(), completed.outcome());
      } else if (output instanceof Output.Ended it) {
        ended.add(it.reason());
      }
    }
  }

  private Outcome outcome(Object caller) {
    pump();
    assertTrue(outcomes.containsKey(caller), () -> caller + " has no outcome");
    return outcomes.get(caller);
  }

  private <E extends HoldfastException> E error(Object caller, Class<E> type) {
    return assertInstanceOf(type, outcome(caller).error());
  }

  /** The node takes the connection and welcomes the session. Returns the hello. */
  private Operation connected() {
    pump();
    assertTrue(session.handleConnected(now));
    ClientFrame frame = session.nextFrame(now);
    Operation hello = frame.getOperations(0);
    OpenSessionResponse welcome =
        OpenSessionResponse.newBuilder()
            .setTtlMs(ttlMs)
            .setLingerMs(ttlMs)
            .setLogicalTimeMs(now / MS)
            .build();
    boolean isOpen = hello.getKindCase() == KindCase.OPEN;
    Answer.Builder answer =
        isOpen
            ? Answer.newBuilder().setRequestId(hello.getOpen().getRequestId()).setOpen(welcome)
            : Answer.newBuilder().setRequestId(hello.getResume().getRequestId()).setResume(welcome);
    told(answer);
    return hello;
  }

  private void told(Answer.Builder... answers) {
    ServerFrame.Builder frame = ServerFrame.newBuilder();
    for (Answer.Builder answer : answers) {
      frame.addAnswers(answer);
    }
    session.handleFrame(now, frame.build());
    pump();
  }

  private long ask(String name, long waitMs) {
    AcquireRequest.Builder acquire = AcquireRequest.newBuilder().setName(name).setWaitMs(waitMs);
    Operation operation = Operation.newBuilder().setAcquire(acquire).build();
    return session.handleRequest(now, Request.of(operation).calledBy(name, FOR_EVER));
  }

  private static Grant grant(String name, long acquire, long token) {
    return Grant.newBuilder()
        .setName(name)
        .setToken(token)
        .setMode(Mode.MODE_EXCLUSIVE)
        .setGuarantee(Guarantee.GUARANTEE_LINEARIZABLE)
        .setAcquireRequestId(acquire)
        .build();
  }

  private Answer.Builder granted(long id, String name, long token) {
    AcquireResponse.Builder acquired = AcquireResponse.newBuilder().setLogicalTimeMs(now / MS);
    return Answer.newBuilder()
        .setRequestId(id)
        .setAcquire(acquired.setGranted(grant(name, id, token)));
  }

  private static Answer.Builder failed(long id, Reason reason, boolean retryable) {
    Failure.Builder failure = Failure.newBuilder().setReason(reason).setRetryable(retryable);
    return Answer.newBuilder().setRequestId(id).setFailure(failure);
  }

  @SuppressWarnings("unchecked")
  private Hold hold(String name) {
    return ((List<Hold>) outcome(name).get()).get(0);
  }

  /** The stream breaks, and the session is resumed at another node. */
  private Operation resume() {
    session.handleDisconnected(now, Failures.retryable("broken"), false);
    now += 500 * MS;
    session.handleTimeout(now);
    return connected();
  }

  @Test
  void a_request_without_an_answer_goes_out_again_under_its_id_behind_a_higher_hello() {
    long id = ask("a", 0);
    ClientFrame first = session.nextFrame(now);
    assertEquals(id, first.getOperations(0).getAcquire().getRequestId());
    assertTrue(first.getAckedThrough() < id);
    Operation hello = resume();
    assertEquals(KindCase.RESUME, hello.getKindCase());
    assertEquals("session-1", hello.getResume().getSessionId());
    assertTrue(hello.getResume().getRequestId() > id);
    ClientFrame again = session.nextFrame(now);
    assertEquals(first.getOperations(0), again.getOperations(0));
    assertTrue(again.getAckedThrough() < id);
    told(granted(id, "a", 7));
    assertEquals(7, hold("a").terms().token());
    ask("b", 0);
    assertTrue(session.nextFrame(now).getAckedThrough() >= id);
  }

  @Test
  void a_sample_counts_from_the_first_sending() {
    long id = ask("a", 0);
    session.nextFrame(now);
    long sent = now;
    resume();
    session.nextFrame(now);
    long resumed = now;
    told(granted(id, "a", 7));
    Hold hold = hold("a");
    // The resume is the later sample, and bounds the session.
    assertEquals(Leases.certainEnd(resumed, TTL_MS * MS), hold.validUntil());
    assertTrue(resumed > sent);
  }

  @Test
  void a_guard_is_lost_by_the_clock_and_stays_lost() {
    long id = ask("a", 0);
    session.nextFrame(now);
    told(granted(id, "a", 7));
    Hold hold = hold("a");
    hold.check(hold.validUntil() - 1);
    assertThrows(LostException.class, () -> hold.check(hold.validUntil()));
    resume();
    assertThrows(LostException.class, () -> hold.check(now));
  }

  @Test
  void ten_thousand_locks_cost_one_heartbeat() {
    int locks = 10_000;
    for (int number = 0; number < locks; number++) {
      ask("lock-" + number, 0);
    }
    for (ClientFrame frame = session.nextFrame(now); frame != null; ) {
      for (Operation operation : frame.getOperationsList()) {
        AcquireRequest acquire = operation.getAcquire();
        told(granted(acquire.getRequestId(), acquire.getName(), acquire.getRequestId()));
      }
      frame = session.nextFrame(now);
    }
    for (int heartbeat = 0; heartbeat < 3; heartbeat++) {
      long due = session.nextTimeout();
      assertEquals(TTL_MS * MS / 3, due - now);
      now = due;
      session.handleTimeout(now);
      pump();
      ClientFrame frame = session.nextFrame(now);
      assertEquals(1, frame.getOperationsCount());
      long beat = frame.getOperations(0).getKeepAlive().getRequestId();
      KeepAliveResponse.Builder alive = KeepAliveResponse.newBuilder().setLogicalTimeMs(now / MS);
      told(Answer.newBuilder().setRequestId(beat).setKeepAlive(alive));
      assertNull(session.nextFrame(now));
    }
    hold("lock-0").check(now);
    hold("lock-" + (locks - 1)).check(now);
  }

  @Test
  void an_acquire_waits_while_the_lease_is_over_and_goes_to_the_next_session() {
    now += 10_000 * MS;
    long id = ask("a", 0);
    // A caller may see the pause of the process before the timer fires.
    ClientFrame heartbeat = session.nextFrame(now);
    assertEquals(KindCase.KEEP_ALIVE, heartbeat.getOperations(0).getKindCase());
    assertNull(session.nextFrame(now));
    long beat = heartbeat.getOperations(0).getKeepAlive().getRequestId();
    told(failed(beat, Reason.REASON_UNKNOWN_SESSION, false));
    Operation hello = connected();
    assertEquals("session-2", hello.getOpen().getSessionId());
    assertEquals(id, session.nextFrame(now).getOperations(0).getAcquire().getRequestId());
    told(granted(id, "a", 7));
    hold("a").check(now);
  }

  @Test
  void an_acquire_goes_out_when_a_late_heartbeat_was_answered_after_all() {
    now += 10_000 * MS;
    ask("a", 0);
    session.handleTimeout(now);
    long beat = session.nextFrame(now).getOperations(0).getKeepAlive().getRequestId();
    KeepAliveResponse.Builder alive = KeepAliveResponse.newBuilder().setLogicalTimeMs(now / MS);
    told(Answer.newBuilder().setRequestId(beat).setKeepAlive(alive));
    assertEquals(KindCase.ACQUIRE, session.nextFrame(now).getOperations(0).getKindCase());
  }

  @Test
  void an_abandoned_acquire_is_cancelled_and_what_was_granted_is_released_once() {
    long id = ask("a", 60_000);
    session.nextFrame(now);
    session.handleAbandoned(now, id);
    Operation cancel = session.nextFrame(now).getOperations(0);
    assertEquals(id, cancel.getCancel().getTarget());
    CancelResponse.Builder late = CancelResponse.newBuilder().setAlreadyGranted(grant("a", id, 7));
    told(
        Answer.newBuilder().setRequestId(cancel.getCancel().getRequestId()).setCancel(late),
        granted(id, "a", 7));
    ClientFrame frame = session.nextFrame(now);
    assertEquals(1, frame.getOperationsCount());
    assertEquals(7, frame.getOperations(0).getRelease().getToken());
    assertEquals(id, frame.getOperations(0).getRelease().getAcquireRequestId());
    assertNull(session.nextFrame(now));
  }

  @Test
  void a_denied_copy_of_an_acquire_may_have_happened_and_is_cancelled() {
    long id = ask("a", 60_000);
    session.nextFrame(now);
    resume();
    session.nextFrame(now);
    told(failed(id, Reason.REASON_PERMISSION_DENIED, false));
    assertTrue(error("a", PermissionDeniedException.class).mayHaveHappened());
    assertEquals(id, session.nextFrame(now).getOperations(0).getCancel().getTarget());
  }

  @Test
  void a_guard_gives_no_token_after_a_denied_copy_of_its_transfer() {
    long id = ask("a", 0);
    session.nextFrame(now);
    told(granted(id, "a", 7));
    Hold hold = hold("a");
    Request transfer = Request.about(hold, Operations.transfer("00"));
    long transfers = session.handleRequest(now, transfer.calledBy("transfer", FOR_EVER));
    session.nextFrame(now);
    resume();
    session.nextFrame(now);
    told(failed(transfers, Reason.REASON_UNAUTHENTICATED, false));
    assertTrue(error("transfer", UnauthenticatedException.class).mayHaveHappened());
    assertThrows(LostException.class, () -> hold.check(now));
  }

  /** Time passes, and a node is dialled. Returns its address. */
  private String dialsAgain() {
    int before = connects.size();
    now += 500 * MS;
    session.handleTimeout(now);
    pump();
    assertEquals(before + 1, connects.size());
    return connects.get(before);
  }

  private void refuseResume(Reason reason, boolean retryable, String leader) {
    assertTrue(session.handleConnected(now));
    long hello = session.nextFrame(now).getOperations(0).getResume().getRequestId();
    Answer.Builder answer = failed(hello, reason, retryable);
    answer.getFailureBuilder().setLeader(leader);
    told(answer);
  }

  private void denyResume() {
    refuseResume(Reason.REASON_UNAUTHENTICATED, false, "");
  }

  private static final long PATIENCE = 5_000 * MS;

  private void denyAll() {
    dialsAgain();
    denyResume();
  }

  /** The other node may not have applied yet what makes the token known. */
  private void denyUnder(String leader) {
    if (dialsAgain().equals(leader)) {
      denyResume();
    } else {
      refuseResume(Reason.REASON_UNAUTHENTICATED, true, leader);
    }
  }

  /** The stream ends before the hello is answered. */
  private void endStream(Reason reason, boolean isFromNode) {
    dialsAgain();
    assertTrue(session.handleConnected(now));
    Failure failure = Failure.newBuilder().setReason(reason).build();
    session.handleDisconnected(now, failure, isFromNode);
    pump();
  }

  /** Denies until the client gives its session up, or for 7 s. */
  private boolean givesUp(Hold hold, Runnable deny) {
    deny.run();
    long began = now;
    while (ended.isEmpty() && now - began < 7_000 * MS) {
      hold.check(now);
      deny.run();
    }
    if (ended.isEmpty()) {
      return false;
    }
    long span = now - began;
    assertTrue(span >= PATIENCE && span <= PATIENCE + 1_000 * MS, () -> "given up after " + span);
    LostException lost = assertThrows(LostException.class, () -> hold.check(now));
    assertEquals(LossReason.DENIED, lost.reason());
    assertEquals(List.of(LossReason.DENIED), ended);
    return true;
  }

  /** In another session, whose lease outlasts the patience. */
  private Hold held() {
    ttlMs = LONG_TTL_MS;
    session = newSession();
    session.handleOpen(now, "open", FOR_EVER);
    connected();
    long id = ask("a", 0);
    session.nextFrame(now);
    told(granted(id, "a", 7));
    return hold("a");
  }

  /** Its stream is broken. */
  private Hold brokenHold() {
    Hold hold = held();
    session.handleDisconnected(now, Failures.retryable("broken"), false);
    return hold;
  }

  @Test
  void a_session_that_all_nodes_deny_for_the_patience_is_lost() {
    Hold hold = held();
    ask("b", 60_000);
    session.nextFrame(now);
    session.handleDisconnected(now, Failures.retryable("broken"), false);
    session.handleRequest(
        now, Request.about(hold, Operations.renew(1_000L)).calledBy("r", FOR_EVER));
    assertTrue(givesUp(hold, this::denyAll));
    assertTrue(error("b", UnauthenticatedException.class).mayHaveHappened());
    assertFalse(error("r", UnauthenticatedException.class).mayHaveHappened());
    assertTrue(session.breaker().isClosed());
    // A new credential opens a new session.
    ask("next", 0);
    assertEquals("session-3", connected().getOpen().getSessionId());
  }

  @Test
  void a_credential_that_is_replaced_within_the_patience_keeps_the_locks() {
    Hold hold = brokenHold();
    denyAll();
    long began = now;
    while (now - began < PATIENCE - 1_000 * MS) {
      denyAll();
    }
    dialsAgain();
    connected();
    hold.check(now);
    assertEquals(List.of(), ended);
  }

  @Test
  void a_short_ttl_makes_the_patience_short() {
    Denials denials = new Denials(6_000 * MS);
    Failure denial = Failures.denied("the token is not known");
    for (int half = 0; half < 5; half++) {
      assertEquals(half == 4, denials.note(half * 500 * MS, "a:1", denial, List.of("a:1")));
    }
  }

  @Test
  void a_node_that_cannot_be_reached_does_not_keep_a_denied_session() {
    Runnable deny =
        () -> {
          if (dialsAgain().equals("b:2")) {
            // The next node is dialled at once.
            Failure noRoute = Failures.retryable("no route");
            session.handleConnectFailed(now, Session.Contact.NOT_MADE, noRoute);
            pump();
          }
          denyResume();
        };
    assertTrue(givesUp(brokenHold(), deny));
  }

  @Test
  void it_is_enough_that_the_leader_is_sure_of_its_denial() {
    assertTrue(givesUp(brokenHold(), () -> denyUnder("a:1")));
    ended.clear();
    assertTrue(givesUp(brokenHold(), () -> denyUnder("b:2")));
  }

  @Test
  void a_session_is_not_given_up_while_no_node_is_sure_of_its_denial() {
    // The client does not know the named leader, so a denial by that leader does not count.
    assertFalse(givesUp(brokenHold(), () -> denyUnder("x:9")));
    assertTrue(connects.contains("x:9"));
  }

  @Test
  void a_node_that_answers_a_resume_otherwise_has_not_denied_it() {
    Runnable answer =
        () -> {
          if (dialsAgain().equals("b:2")) {
            refuseResume(Reason.REASON_NO_QUORUM, true, "");
          } else {
            denyResume();
          }
        };
    assertFalse(givesUp(brokenHold(), answer));
  }

  @Test
  void a_denial_that_ends_the_stream_counts_if_a_node_said_it() {
    assertTrue(givesUp(brokenHold(), () -> endStream(Reason.REASON_CREDENTIAL_EXPIRED, true)));
  }

  @Test
  void a_denial_that_no_node_said_does_not_count() {
    assertFalse(givesUp(brokenHold(), () -> endStream(Reason.REASON_UNAUTHENTICATED, false)));
  }

  @Test
  void a_denial_that_is_older_than_the_patience_does_not_count() {
    Hold hold = brokenHold();
    denyAll();
    dialsAgain();
    now += PATIENCE + MS;
    denyResume();
    hold.check(now);
    assertEquals(List.of(), ended);
  }

  @Test
  void a_node_that_lets_the_client_resume_ends_the_count_of_denials() {
    Hold hold = brokenHold();
    denyAll();
    long began = now;
    dialsAgain();
    connected();
    session.handleDisconnected(now, Failures.retryable("broken"), false);
    dialsAgain();
    now = began + PATIENCE;
    denyResume();
    hold.check(now);
    assertEquals(List.of(), ended);
  }

  private static Answer.Builder rateLimited(long id, long retryAfterMs) {
    Answer.Builder answer = failed(id, Reason.REASON_RATE_LIMITED, true);
    answer.getFailureBuilder().setRetryAfterMs(retryAfterMs);
    return answer;
  }

  @Test
  void a_caller_that_does_not_wait_until_the_node_takes_the_request_is_told_at_once() {
    AcquireRequest.Builder acquire = AcquireRequest.newBuilder().setName("a");
    Operation operation = Operation.newBuilder().setAcquire(acquire).build();
    long waitsUntil = now + 5_000 * MS;
    long id = session.handleRequest(now, Request.of(operation).calledBy("a", waitsUntil));
    session.nextFrame(now);
    told(rateLimited(id, 500));
    long sentBack = now;
    assertNull(session.nextFrame(now));
    now = session.nextTimeout();
    session.handleTimeout(now);
    assertEquals(id, session.nextFrame(now).getOperations(0).getAcquire().getRequestId());
    assertTrue(now >= sentBack + 500 * MS);
    told(rateLimited(id, 4_000));
    QuotaExceededException told = error("a", QuotaExceededException.class);
    assertEquals("rate_limited", told.reason());
    assertEquals(Optional.of(Duration.ofSeconds(4)), told.retryAfter());
    assertFalse(told.mayHaveHappened());
  }

  @Test
  void a_request_that_may_have_been_carried_out_is_sent_again_however_long_that_takes() {
    AcquireRequest.Builder acquire = AcquireRequest.newBuilder().setName("a");
    Operation operation = Operation.newBuilder().setAcquire(acquire).build();
    long waitsUntil = now + 5_000 * MS;
    long id = session.handleRequest(now, Request.of(operation).calledBy("a", waitsUntil));
    session.nextFrame(now);
    resume();
    session.nextFrame(now);
    told(rateLimited(id, 3_600_000));
    assertFalse(outcomes.containsKey("a"));
  }

  @Test
  void a_session_that_may_not_be_opened_yet_is_opened_when_the_node_said() {
    session = newSession();
    ask("a", 0);
    pump();
    assertTrue(session.handleConnected(now));
    told(rateLimited(session.nextFrame(now).getOperations(0).getOpen().getRequestId(), 2_000));
    long refused = now;
    int tries = connects.size();
    now = session.nextTimeout();
    session.handleTimeout(now);
    pump();
    assertEquals(tries + 1, connects.size());
    assertTrue(now >= refused + 2_000 * MS);
  }

  @Test
  void an_acquire_that_never_went_out_is_forgotten() {
    session.handleDisconnected(now, Failures.retryable("broken"), false);
    long id = ask("a", 0);
    session.handleAbandoned(now, id);
    now += 500 * MS;
    session.handleTimeout(now);
    connected();
    assertNull(session.nextFrame(now));
  }

  @Test
  void a_queued_acquire_counts_as_answered_and_its_discarded_answer_is_a_timeout() {
    long id = ask("a", 100);
    session.nextFrame(now);
    Queued.Builder queued = Queued.newBuilder().setRequestId(id).setPosition(1);
    Notice.Builder notice = Notice.newBuilder().setQueued(queued);
    session.handleFrame(now, ServerFrame.newBuilder().addNotices(notice).build());
    ask("b", 0);
    assertTrue(session.nextFrame(now).getAckedThrough() >= id);
    now += 200 * MS;
    told(failed(id, Reason.REASON_ANSWER_DISCARDED, false));
    error("a", TimedOutException.class);
  }

  @Test
  void a_release_waits_for_the_answer_to_a_conversion() {
    long id = ask("a", 0);
    session.nextFrame(now);
    told(granted(id, "a", 7));
    Hold hold = hold("a");
    Operation convert = Operations.convert(Mode.MODE_EXCLUSIVE, 1_000);
    long converts =
        session.handleRequest(now, Request.about(hold, convert).calledBy("convert", FOR_EVER));
    session.handleRequest(now, Request.releaseOf(hold).calledBy("release", FOR_EVER));
    assertEquals(1, session.nextFrame(now).getOperationsCount());
    AcquireResponse.Builder converted =
        AcquireResponse.newBuilder().setGranted(grant("a", id, 8)).setLogicalTimeMs(now / MS);
    told(Answer.newBuilder().setRequestId(converts).setAcquire(converted));
    assertEquals(8, session.nextFrame(now).getOperations(0).getRelease().getToken());
  }

  @Test
  void an_open_whose_session_has_ended_unseen_is_tried_again_under_another_id() {
    long id = ask("a", 0);
    session.nextFrame(now);
    told(failed(id, Reason.REASON_UNKNOWN_SESSION, false));
    ask("b", 0);
    pump();
    assertTrue(session.handleConnected(now));
    assertEquals("session-2", session.nextFrame(now).getOperations(0).getOpen().getSessionId());
    // The cluster opens the session, the answer is lost, and the TTL passes.
    session.handleDisconnected(now, Failures.retryable("broken"), false);
    now += 10_000 * MS;
    session.handleTimeout(now);
    pump();
    assertTrue(session.handleConnected(now));
    Operation again = session.nextFrame(now).getOperations(0);
    assertEquals("session-2", again.getOpen().getSessionId());
    told(failed(again.getOpen().getRequestId(), Reason.REASON_SESSION_EXISTS, false));
    assertEquals("session-3", connected().getOpen().getSessionId());
    assertEquals("b", session.nextFrame(now).getOperations(0).getAcquire().getName());
  }

  @Test
  void a_session_that_is_lost_tells_holders_and_waiters() {
    long id = ask("a", 0);
    session.nextFrame(now);
    told(granted(id, "a", 7));
    long waiting = ask("b", 1_000);
    session.nextFrame(now);
    told(failed(waiting, Reason.REASON_UNKNOWN_SESSION, false));
    assertThrows(LostException.class, () -> hold("a").check(now));
    error("b", LostException.class);
  }

  @Test
  void the_circuit_opens_when_no_node_serves_and_callers_are_told() {
    long id = ask("a", 0);
    session.nextFrame(now);
    session.handleDisconnected(now, Failures.retryable("broken"), false);
    for (int round = 0; round < 50; round++) {
      now += 200 * MS;
      session.handleTimeout(now);
      pump();
      session.handleConnectFailed(now, Session.Contact.NOT_MADE, Failures.retryable("silence"));
    }
    assertFalse(session.breaker().isClosed());
    assertTrue(connects.contains("a:1") && connects.contains("b:2"), connects::toString);
    assertTrue(id > 0);
  }

  @Test
  void nodes_that_refuse_are_reported_after_a_second_though_the_first_try_took_too_long() {
    session = newSession();
    long id = ask("a", 0);
    pump();
    Session.Contact contact = Session.Contact.NOT_MADE;
    for (int tries = 0; tries < 20 && !outcomes.containsKey("a"); tries++) {
      session.handleConnectFailed(now, contact, Failures.retryable("no connection"));
      contact = Session.Contact.REFUSED;
      now += 200 * MS;
      session.handleTimeout(now);
      pump();
    }
    assertFalse(error("a", UnavailableException.class).mayHaveHappened());
    assertTrue(id > 0 && now < 4_000 * MS, () -> "after " + now / MS + " ms");
  }

  @Test
  void a_caller_that_waited_long_enough_is_told_that_it_may_have_happened() {
    AcquireRequest.Builder acquire = AcquireRequest.newBuilder().setName("a");
    Operation operation = Operation.newBuilder().setAcquire(acquire).build();
    session.handleRequest(now, Request.of(operation).calledBy("a", now + 100 * MS));
    session.nextFrame(now);
    now += 100 * MS;
    session.handleTimeout(now);
    assertTrue(error("a", UnavailableException.class).mayHaveHappened());
  }

  @Test
  void a_node_that_owes_an_answer_is_left_with_a_farewell() {
    ask("a", 0);
    session.nextFrame(now);
    now = session.nextTimeout();
    session.handleTimeout(now);
    session.handleQuiet(now);
    pump();
    assertTrue(farewells.get(farewells.size() - 1));
  }
}
