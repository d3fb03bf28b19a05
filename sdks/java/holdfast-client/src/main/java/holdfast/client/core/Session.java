package holdfast.client.core;

import holdfast.client.errors.ClosedException;
import holdfast.client.errors.LossReason;
import holdfast.v1.Answer;
import holdfast.v1.Answer.ResultCase;
import holdfast.v1.ClientFrame;
import holdfast.v1.Failure;
import holdfast.v1.OpenSessionRequest;
import holdfast.v1.OpenSessionResponse;
import holdfast.v1.Operation.KindCase;
import holdfast.v1.Reason;
import holdfast.v1.ServerFrame;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Supplier;

/**
 * A client's session with the cluster, over connections that break and sessions that are lost.
 *
 * <p>It does nothing by itself. Its driver owns the stream, the clock and the callers. After each
 * input it carries out the outputs, then sends {@code nextFrame} until there is none, then sleeps
 * until {@code nextTimeout} or the next input.
 */
public final class Session {
  /** How far a connection got. */
  public enum Contact {
    NOT_MADE,
    /** Nothing listens there. */
    REFUSED,
    MADE
  }

  private enum Link {
    IDLE,
    PAUSED,
    CONNECTING,
    GREETING,
    OPEN,
    FINISHED
  }

  /** Within this time a node has to answer the hello, or the next one is asked. */
  private static final long HELLO_TIMEOUT = 1_000 * Leases.MS;

  /** One command under one lock is served before it would pay to move to the leader. */
  private static final long SETTLING_TIME = 250 * Leases.MS;

  /** A leader that takes the connection and then says nothing costs a second or two. */
  private static final long APPROACH_SPAN_MIN = 6_000 * Leases.MS;

  /** A cluster all of whose nodes refuse the connection is not there, and will hardly come. */
  private static final long REFUSED_PATIENCE = 1_000 * Leases.MS;

  /**
   * Between two hellos that are sent only to learn a newer map: until a node knows it, a welcome
   * tells nothing new.
   */
  private static final long MAP_FETCH_INTERVAL = 1_000 * Leases.MS;

  private static final long CLOSING_PATIENCE = 2_000 * Leases.MS;

  /** The cluster remembers ended sessions for two minutes. An open that is older gets a new id. */
  private static final long OPEN_FOR = 60_000 * Leases.MS;

  private static final long NEVER = Long.MAX_VALUE;

  private final Endpoints endpoints;
  private final OpenSessionRequest settings;
  private final Supplier<String> newSessionId;
  private final State state;
  private final long span;
  private final Breaker breaker = new Breaker();

  private Link link = Link.IDLE;
  private String address = "";

  /** When a pause ends, or the patience with a hello. */
  private long until;

  private State.Hello hello;
  private boolean isHelloUnsent;

  /** The connection under way is for another stream, while the present one serves. */
  private boolean isApproaching;

  /** The stream that is greeted is that of an approach. */
  private boolean isApproach;

  private long approachAt = NEVER;

  /** The leader; or the node that serves, to learn a newer map from its welcome. */
  private String approached = "";

  private long mapFetchedAt = Request.NEVER;
  private long blockedSince = NEVER;

  /** A leader that could be connected to, and yet did not serve. */
  private String unhelpful;

  /** Callers who wait for a session, and ask for nothing else. */
  private List<Request> openers = new ArrayList<>();

  private boolean wasEverOpen;

  /** When the first try began, as long as all that nodes did was to refuse the connection. */
  private long refusedSince;

  private long closingUntil = NEVER;

  public Session(
      Endpoints endpoints,
      OpenSessionRequest settings,
      Supplier<String> newSessionId,
      State state,
      long now) {
    this.endpoints = endpoints;
    this.settings = settings;
    this.newSessionId = newSessionId;
    this.state = state;
    this.span = spanOf(settings);
    // A cluster that has told of another group was there.
    this.wasEverOpen = settings.getGroup() > Routes.ROOT;
    this.refusedSince = wasEverOpen ? NEVER : now;
    state.id = newSessionId.get();
    state.group = Math.max(Routes.ROOT, settings.getGroup());
    state.denials = new Denials(settings.getTtlMs() * Leases.MS);
  }

  public static long spanOf(OpenSessionRequest settings) {
    long lingerMs = settings.hasLingerMs() ? settings.getLingerMs() : settings.getTtlMs();
    return Math.min(settings.getTtlMs(), lingerMs) * Leases.MS;
  }

  public State state() {
    return state;
  }

  public Breaker breaker() {
    return breaker;
  }

  public List<String> addresses() {
    return endpoints.addresses();
  }

  /** The same nodes, for a session in another group, which this node leads; it may be empty. */
  public Endpoints endpointsLedBy(String leader) {
    return endpoints.ledBy(leader);
  }

  /** Null if there is nothing more to do. */
  public Output nextOutput() {
    return state.outputs.poll();
  }

  public boolean isFinished() {
    return link == Link.FINISHED;
  }

  /** Whether the node that serves the session has not answered something. */
  public boolean wasEverOpen() {
    return wasEverOpen;
  }

  public boolean isOwedAnAnswer() {
    return link == Link.OPEN && !state.requests.isEmpty();
  }

  private boolean isClosing() {
    return closingUntil != NEVER;
  }

  // What the program wants.

  /** Opens a session now, and not with the first request. */
  public void handleOpen(long now, Object caller, long waitsUntil) {
    Request opener = Request.of(Operations.open()).calledBy(caller, waitsUntil);
    if (isFinished() || isClosing()) {
      state.complete(opener, Outcome.error(ClosedException::new));
    } else if (state.isOpen()) {
      state.complete(opener, Outcome.done());
    } else {
      openers.add(opener);
      beginFirst(now);
      connectIfNeeded(now);
    }
  }

  /** Returns the number by which {@code handleAbandoned} knows it. */
  public long handleRequest(long now, Request request) {
    if (isFinished() || isClosing()) {
      state.complete(request, Outcome.error(ClosedException::new));
      return 0;
    }
    beginFirst(now);
    long call = state.ask(request);
    connectIfNeeded(now);
    return call;
  }

  /** A caller who only waits for a session is gone. */
  public void handleOpenAbandoned(Object caller) {
    openers.removeIf(opener -> opener.caller == caller);
  }

  public void handleAbandoned(long now, long call) {
    if (!isFinished()) {
      state.abandon(call);
      connectIfNeeded(now);
    }
  }

  public void handleClose(long now, Object caller) {
    Request close = Request.of(Operations.close()).calledBy(caller, now + CLOSING_PATIENCE);
    if (isFinished() || !state.isOpen()) {
      state.complete(close, Outcome.done());
      finish();
      return;
    }
    if (!isClosing()) {
      closingUntil = now + CLOSING_PATIENCE;
      approachAt = NEVER;
      // What is held when a session is closed is given back by that.
      state.requests.takeOut(it -> it.kind() == KindCase.RELEASE && it.caller == null);
    }
    state.ask(close);
  }

  private void beginFirst(long now) {
    if (link == Link.IDLE && !wasEverOpen) {
      refusedSince = now;
    }
  }

  /** The driver cannot go on. Holders and callers are told. */
  public void handleFailure() {
    finish();
  }

  // What the network did.

  /** False if the connection is not wanted any more. */
  public boolean handleConnected(long now) {
    if (link == Link.CONNECTING) {
      isApproach = false;
    } else if (link == Link.OPEN && isApproaching) {
      state.streamBroke();
      disconnect(true);
      breaker.handleTry(now);
      address = approached;
      isApproach = true;
    } else {
      return false;
    }
    boolean isOld = state.openSentAt != Request.NEVER && now - state.openSentAt > OPEN_FOR;
    if (!state.isOpen() && isOld) {
      state.id = newSessionId.get();
      state.openSentAt = Request.NEVER;
    }
    hello = state.hello(settings, now);
    isHelloUnsent = true;
    link = Link.GREETING;
    until = now + HELLO_TIMEOUT;
    return true;
  }

  /** A failure that is not retryable: the node does not accept this client. Another one may. */
  public void handleConnectFailed(long now, Contact contact, Failure failure) {
    if (link == Link.CONNECTING) {
      endpoints.couldNotReach(address);
      onNoStream(now, contact, failure);
    } else if (link == Link.OPEN) {
      // It is served where it is.
      isApproaching = false;
    }
  }

  public void handleFrame(long now, ServerFrame received) {
    ServerFrame frame = received;
    if (link == Link.GREETING) {
      frame = onFirstFrame(now, received);
    }
    if (link != Link.OPEN) {
      return;
    }
    Verdict verdict = Answers.onFrame(state, now, frame);
    if (state.isMapOutdated) {
      state.isMapOutdated = false;
      fetchMap(now);
    }
    if (state.endpointsTold != null) {
      endpoints.learn(state.endpointsTold);
      state.endpointsTold = null;
    }
    actOn(now, verdict);
  }

  /** Plans another stream, whose welcome tells a newer map. The present one serves until then. */
  private void fetchMap(long now) {
    long at =
        mapFetchedAt == Request.NEVER ? now : Math.max(now, mapFetchedAt + MAP_FETCH_INTERVAL);
    // If another stream is under way, or comes sooner, its welcome tells the map.
    if (isClosing() || isApproaching || approachAt <= at) {
      return;
    }
    if (approachAt == NEVER) {
      approached = address;
    }
    approachAt = at;
    mapFetchedAt = at;
  }

  /** Returns what else is in it. */
  private ServerFrame onFirstFrame(long now, ServerFrame frame) {
    ServerFrame.Builder rest = frame.toBuilder().clearAnswers();
    Answer welcome = Answer.getDefaultInstance();
    for (Answer answer : frame.getAnswersList()) {
      if (answer.getRequestId() == hello.requestId()) {
        welcome = answer;
      } else {
        rest.addAnswers(answer);
      }
    }
    if (welcome.getResultCase() == ResultCase.FAILURE) {
      onHelloFailed(now, state.withoutOtherLeader(welcome.getFailure()), true, false);
    } else if (welcome.getResultCase() == ResultCase.OPEN) {
      onWelcome(now, welcome.getOpen());
    } else if (welcome.getResultCase() == ResultCase.RESUME) {
      onWelcome(now, welcome.getResume());
    } else {
      onHelloUnanswered(now, "the first frame does not answer the hello");
    }
    return rest.build();
  }

  /**
   * Why the stream is over. A proxy may have ended it, which knows nothing of sessions: only the
   * denials of a node count.
   */
  public void handleDisconnected(long now, Failure told, boolean isFromNode) {
    Failure failure = state.withoutOtherLeader(told);
    if (link == Link.GREETING) {
      onHelloFailed(now, failure, isFromNode, false);
    } else if (link == Link.OPEN && failure.getReason() == Reason.REASON_UNKNOWN_SESSION) {
      replaceSession(now, LossReason.SESSION_EXPIRED, "");
    } else if (link == Link.OPEN) {
      leaveNode(now, failure.getLeader(), failure.getMessage());
    }
  }

  /** The connection has no room for the next frame. */
  public void handleBlocked(long now) {
    if (link == Link.OPEN && blockedSince == NEVER) {
      blockedSince = now;
    }
  }

  // Time that passed.

  public void handleTimeout(long now) {
    if (closingUntil <= now) {
      finish();
      return;
    }
    List<Request> overdue = openers.stream().filter(it -> it.waitsUntil <= now).toList();
    openers.removeAll(overdue);
    overdue.forEach(it -> state.complete(it, Outcome.error(state.unavailable(true))));
    state.letCallersGo(now);
    state.checkWatched(now);
    if (link == Link.PAUSED && until <= now) {
      link = Link.IDLE;
      connectIfNeeded(now);
    } else if (link == Link.GREETING && until <= now) {
      onHelloUnanswered(now, "no answer to the hello within a second");
    } else if (link == Link.OPEN) {
      if (approachAt <= now) {
        approachAt = NEVER;
        isApproaching = true;
        state.outputs.add(new Output.Connect(approached));
      }
      state.stageDue(now);
      // Only so that it is known when the next answer is due.
      state.requests.isAnswerOverdue(now);
    }
  }

  /** Nothing that arrived is left to be read: a node that owes an answer is left. */
  public void handleQuiet(long now) {
    if (link != Link.OPEN) {
      return;
    }
    if (state.requests.isAnswerOverdue(now)) {
      leaveNode(now, "", "the node does not answer");
    } else if (blockedSince != NEVER && blockedSince + state.answerPatience <= now) {
      leaveNode(now, "", "the node takes nothing more");
    }
  }

  /** {@code Long.MAX_VALUE} for never. */
  public long nextTimeout() {
    long due = Math.min(state.nextCallerDue(), closingUntil);
    for (Request opener : openers) {
      due = Math.min(due, opener.waitsUntil);
    }
    if (link == Link.PAUSED || link == Link.GREETING) {
      due = Math.min(due, until);
    } else if (link == Link.OPEN) {
      due = Math.min(due, Math.min(state.nextDue(), approachAt));
      if (blockedSince != NEVER) {
        due = Math.min(due, blockedSince + state.answerPatience);
      }
    }
    return due;
  }

  /** To be called as long as the connection has room. Null if there is nothing to send. */
  public ClientFrame nextFrame(long now) {
    if (link == Link.GREETING && isHelloUnsent) {
      isHelloUnsent = false;
      return hello.frame();
    }
    if (link == Link.OPEN) {
      blockedSince = NEVER;
      return state.nextFrame(now);
    }
    return null;
  }

  public boolean hasFrame() {
    return switch (link) {
      case GREETING -> isHelloUnsent;
      case OPEN -> state.requests.hasStaged();
      default -> false;
    };
  }

  // Which node serves the session.

  private void connectIfNeeded(long now) {
    boolean isWanted = !openers.isEmpty() || state.requests.hasStaged();
    if (link == Link.IDLE && (state.isOpen() || isWanted || !breaker.isClosed())) {
      breaker.handleTry(now);
      address = endpoints.nextAddress();
      link = Link.CONNECTING;
      state.outputs.add(new Output.Connect(address));
    }
  }

  private void onWelcome(long now, OpenSessionResponse welcome) {
    state.backoff.reset();
    breaker.handleSuccess();
    refusedSince = NEVER;
    wasEverOpen = true;
    endpoints.reached();
    if (address.equals(unhelpful)) {
      unhelpful = null;
    }
    state.errors.clear();
    state.welcomed(hello.sentAt(), welcome);
    link = Link.OPEN;
    blockedSince = NEVER;
    if (welcome.hasMap()) {
      state.learn(welcome.getMap());
    }
    approached = welcome.getLeader();
    isApproaching = false;
    boolean isBetter =
        !approached.equals(address)
            && endpoints.mayFollow(approached)
            && !approached.equals(unhelpful)
            && span >= APPROACH_SPAN_MIN
            && !isClosing();
    approachAt = isBetter ? now + SETTLING_TIME : NEVER;
    endpoints.learn(welcome.getEndpointsList());
    tellOpeners(Outcome.done());
  }

  private void tellOpeners(Outcome outcome) {
    List<Request> told = openers;
    openers = new ArrayList<>();
    told.forEach(opener -> state.complete(opener, outcome));
  }

  private void onHelloUnanswered(long now, String words) {
    Failure failure = Failures.retryable(words).toBuilder().setMayHaveHappened(true).build();
    onHelloFailed(now, failure, false, true);
  }

  private void onHelloFailed(long now, Failure failure, boolean isFromNode, boolean withFarewell) {
    disconnect(withFarewell);
    if (isApproach) {
      unhelpful = address;
    }
    endpoints.reached();
    if (isFromNode && state.isDenied(now, address, failure, endpoints.addresses())) {
      onDenied(now, failure);
    } else {
      onNoStream(now, Contact.MADE, failure);
    }
  }

  /**
   * What becomes of the session in the cluster is not known: the client can neither renew nor end
   * it.
   */
  private void onDenied(long now, Failure failure) {
    breaker.handleSuccess();
    for (Request request : state.requests.takeOut(it -> true)) {
      Failure told = failure.toBuilder().setMayHaveHappened(request.wasSent()).build();
      state.complete(request, Outcome.refused(told));
    }
    replaceSession(now, LossReason.DENIED, failure.getMessage());
  }

  private void onNoStream(long now, Contact contact, Failure failure) {
    link = Link.IDLE;
    state.leaderLost(LossReason.LEADER_UNREACHABLE);
    // The node served if it said what becomes of the session.
    boolean isVerdict =
        state.isOpen()
            ? failure.getReason() == Reason.REASON_UNKNOWN_SESSION
            : !failure.getRetryable();
    if (isVerdict) {
      breaker.handleSuccess();
    } else {
      breaker.handleFailure(now);
    }
    state.errors.put(address, failure.getMessage());
    if (contact != Contact.REFUSED) {
      refusedSince = NEVER;
    } else if (refusedSince == NEVER && !wasEverOpen) {
      // The first connection of a program can take longer than a second: classes are loaded.
      refusedSince = now;
    }
    boolean hasTriedAll = endpoints.hasTriedAll();
    boolean isNotThere = refusedSince != NEVER && now - refusedSince >= REFUSED_PATIENCE;
    if (isNotThere && hasTriedAll) {
      // A client that has no session yet does not wait for nodes that are not there.
      giveUp(Outcome.error(state.unavailable(false)));
      refusedSince = now;
    } else if (contact != Contact.MADE && !hasTriedAll) {
      // A node that is gone is no reason to keep the next one waiting.
      connectIfNeeded(now);
    } else if (state.isOpen() && isVerdict) {
      replaceSession(now, LossReason.SESSION_EXPIRED, "");
    } else if (failure.getReason() == Reason.REASON_SESSION_EXISTS && hello.wasOpenSent()) {
      // An earlier try opened it, and its time is over by now. Nothing was asked in it.
      replaceSession(now, LossReason.SESSION_EXPIRED, "");
    } else if (isVerdict) {
      // The cluster refuses a session with these settings. The limits may change.
      giveUp(Outcome.refused(failure));
      replaceSession(now, LossReason.ENDED, "");
    } else {
      endpoints.followLeader(failure.getLeader());
      pause(now, Failures.retryAfter(failure));
    }
  }

  private void giveUp(Outcome outcome) {
    tellOpeners(outcome);
    state.requests.takeOut(it -> true).forEach(request -> state.complete(request, outcome));
  }

  private void actOn(long now, Verdict verdict) {
    switch (verdict.kind()) {
      case CLOSED -> finish();
      case SESSION_LOST -> replaceSession(now, verdict.reason(), "");
      case MOVE -> leaveNode(now, verdict.leader(), verdict.words());
      case GO_ON -> {}
    }
  }

  /** The node does not serve the session any more, and another has to. */
  private void leaveNode(long now, String namedLeader, String words) {
    state.errors.put(address, words);
    endpoints.followLeader(namedLeader);
    state.streamBroke();
    state.leaderLost(LossReason.LEADER_UNREACHABLE);
    disconnect(!isClosing());
    // Not at once: the next node may not know yet that it leads.
    pause(now);
  }

  private void replaceSession(long now, LossReason reason, String words) {
    disconnect(false);
    if (state.isOpen()) {
      state.outputs.add(new Output.Ended(reason, words));
    }
    boolean isWanted = !isClosing();
    state.end(reason, isWanted);
    if (!isWanted) {
      finish();
      return;
    }
    state.id = newSessionId.get();
    link = Link.IDLE;
    connectIfNeeded(now);
  }

  private void pause(long now) {
    pause(now, 0);
  }

  /**
   * Not so long that it would matter to a short lease. Without a session, as long as the node has
   * told.
   */
  private void pause(long now, long told) {
    long delay = told + state.backoff.nextDelay();
    link = Link.PAUSED;
    until = now + (told > 0 && !state.isOpen() ? delay : Math.min(delay, span / 20));
  }

  private void disconnect(boolean withFarewell) {
    approachAt = NEVER;
    isApproaching = false;
    state.outputs.add(new Output.Disconnect(withFarewell));
  }

  private void finish() {
    if (!isFinished()) {
      // A close without an answer stays without one: its caller must not take it for done.
      for (Request close : state.requests.takeOut(it -> it.kind() == KindCase.CLOSE)) {
        state.complete(close, Outcome.error(state.unavailable(true)));
      }
      tellOpeners(Outcome.error(ClosedException::new));
      state.end(LossReason.SESSION_CLOSED, false);
      disconnect(false);
      link = Link.FINISHED;
    }
  }
}
