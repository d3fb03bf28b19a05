package holdfast.client.core;

import holdfast.client.errors.ClosedException;
import holdfast.client.errors.HoldfastException;
import holdfast.client.errors.LossReason;
import holdfast.client.errors.LostException;
import holdfast.client.errors.UnavailableException;
import holdfast.v1.Answer;
import holdfast.v1.ClientFrame;
import holdfast.v1.Failure;
import holdfast.v1.GroupMap;
import holdfast.v1.OpenSessionRequest;
import holdfast.v1.OpenSessionResponse;
import holdfast.v1.Operation;
import holdfast.v1.Operation.KindCase;
import holdfast.v1.ReleaseOutcome;
import holdfast.v1.RenewRequest;
import holdfast.v1.ResumeSessionRequest;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.function.Predicate;
import java.util.function.Supplier;
import java.util.random.RandomGenerator;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** What is known about the present session: its holds, its lease, and what has no answer. */
public class State {
  /** How long an answer may take, beyond the request's own wait, before another node is asked. */
  private static final long PATIENCE_MIN = 500 * Leases.MS;

  private static final long PATIENCE_MAX = 3_000 * Leases.MS;

  /** So that a frame stays far below the servers' limit. */
  private static final int NAMES_PER_FRAME_MAX = 256;

  /** A renewal that the library makes by itself is due after a third of the TTL. */
  private static final int RENEWALS_PER_TTL = 3;

  private static final long NEVER = Long.MAX_VALUE;

  /** The first operation of a stream. An open may have been sent before, under the same id. */
  record Hello(long requestId, long sentAt, boolean wasOpenSent, ClientFrame frame) {}

  /** Ids go on over the sessions of a client: a lost hold is never taken for a later one. */
  final InFlight requests;

  final Map<Hold.Key, Hold> holds = new LinkedHashMap<>();

  /** Holds without a guard whose release has no answer yet: an acquire may enter them again. */
  final Map<Hold.Key, Hold> releasing = new LinkedHashMap<>();

  /** Holds whose conversion has no answer yet, and the requests that wait for it. */
  private final Map<Long, List<Long>> converting = new HashMap<>();

  final Map<Long, Long> retriesDue = new HashMap<>();
  final Map<String, String> errors = new LinkedHashMap<>();
  final Queue<Output> outputs = new ArrayDeque<>();
  final Backoff backoff;
  final long answerPatience;

  String id;

  /** In which group of the cluster the session is. The session sets it. */
  int group = Routes.ROOT;

  /** Which group has which locks, as the last node that served the session has told it. */
  private Routes routes = Routes.ONE_GROUP;

  /** A group has refused by a newer map than this session has. */
  boolean isMapOutdated;

  /** Null as long as the session is not open. */
  Leases leases;

  long openSentAt = Request.NEVER;

  /** The id of the heartbeat that is under way; 0 for none. */
  long heartbeat;

  /** What the nodes said that did not let the client resume. The session sets it. */
  Denials denials;

  /** What the cluster said of its nodes; null if nothing new. */
  List<String> endpointsTold;

  /** No caller stops waiting before then. It may be too early, and is set right when reached. */
  private long callersWaitUntil = NEVER;

  /** Holds of which the program wants to hear when they are lost, and when the first may be. */
  private final Set<Hold> watched = new HashSet<>();

  private long watchedUntil = NEVER;
  private final Set<Hold> renewed = new LinkedHashSet<>();
  private long term;

  public State(long span, RandomGenerator jitter) {
    this(span, jitter, new InFlight());
  }

  protected State(long span, RandomGenerator jitter, InFlight requests) {
    this.requests = requests;
    this.backoff = new Backoff(jitter);
    this.answerPatience = Math.min(Math.max(span / 4, PATIENCE_MIN), PATIENCE_MAX);
  }

  protected Leases newLeases(long sentAt, long logicalMs, long ttl, long linger) {
    return new Leases(sentAt, logicalMs, ttl, linger);
  }

  boolean isOpen() {
    return leases != null;
  }

  Hello hello(OpenSessionRequest settings, long now) {
    // Read before the new id is reserved: a hello must not acknowledge its own answer.
    long ackedThrough = requests.ackedThrough();
    long requestId = requests.reserveId();
    Operation.Builder operation = Operation.newBuilder();
    long sentAt = now;
    boolean wasOpenSent = openSentAt != Request.NEVER;
    if (isOpen()) {
      operation.setResume(
          ResumeSessionRequest.newBuilder()
              .setSessionId(id)
              .setRequestId(requestId)
              .setGroup(settings.getGroup()));
    } else {
      ackedThrough = 0;
      operation.setOpen(settings.toBuilder().setSessionId(id).setRequestId(requestId));
      openSentAt = wasOpenSent ? openSentAt : now;
      sentAt = openSentAt;
    }
    ClientFrame.Builder frame = ClientFrame.newBuilder().setAckedThrough(ackedThrough);
    return new Hello(requestId, sentAt, wasOpenSent, frame.addOperations(operation).build());
  }

  /** A node has not let the client resume. Whether the client has to give its session up. */
  protected boolean isDenied(long now, String address, Failure failure, Collection<String> nodes) {
    return isOpen() && denials.note(now, address, failure, nodes);
  }

  void welcomed(long sentAt, OpenSessionResponse welcome) {
    denials.clear();
    if (term != welcome.getTerm()) {
      term = welcome.getTerm();
      restartEfficiencyTier();
    }
    long logicalMs = welcome.getLogicalTimeMs();
    if (leases != null) {
      leases.answered(sentAt, logicalMs);
      return;
    }
    long ttl = welcome.getTtlMs() * Leases.MS;
    leases = newLeases(sentAt, logicalMs, ttl, welcome.getLingerMs() * Leases.MS);
  }

  /** A map that gives a slot to no group, or to two, is ignored. */
  protected void learn(GroupMap map) {
    Routes told = Routes.of(map);
    if (told != null) {
      routes = routes.newerOf(told);
      outputs.add(new Output.RoutesLearned(routes));
    }
  }

  /** A group has refused by the map with this epoch. Without a map the session fetches none. */
  void noteMapEpoch(long epoch) {
    isMapOutdated |= !routes.isOneGroup() && routes.isOlderThan(epoch);
  }

  /** The leader of another group does not serve this session. */
  Failure withoutOtherLeader(Failure failure) {
    boolean isOfOther = failure.getGroup() != 0 && failure.getGroup() != group;
    return isOfOther ? failure.toBuilder().clearLeader().build() : failure;
  }

  /** Null as long as the session is not open. */
  protected final Leases leases() {
    return leases;
  }

  /**
   * Takes the sample that an answer is. A failure is none, and the time of a read is in no entry of
   * the log. A principal that was revoked may still give up what it has, which does not keep its
   * session alive.
   */
  protected void noteTime(long now, Answer answer) {
    long logicalMs =
        switch (answer.getResultCase()) {
          case KEEP_ALIVE -> answer.getKeepAlive().getLogicalTimeMs();
          case ACQUIRE -> answer.getAcquire().getLogicalTimeMs();
          case RENEW -> answer.getRenew().getLogicalTimeMs();
          case PROCLAIM -> answer.getProclaim().getLogicalTimeMs();
          case TRANSFER -> answer.getTransfer().getLogicalTimeMs();
          default -> -1;
        };
    Request request = requests.get(answer.getRequestId());
    if (request == null || !request.wasSent() || leases == null || logicalMs < 0) {
      return;
    }
    if (request.isBestEffort()) {
      leases.answeredBestEffort(request.firstSentAt, logicalMs);
    } else {
      leases.answered(request.firstSentAt, logicalMs);
    }
  }

  private void restartEfficiencyTier() {
    if (leases != null) {
      leases.bestEffortRestarts();
    }
    endHolds(holdsWhere(Hold::isBestEffort), LossReason.LEADER_CHANGED);
    askAgainUnderNewIds(request -> request.isAcquire() && request.isBestEffort());
  }

  /** The cluster forgot what was asked. What is still wanted is asked for again. */
  protected void askAgainUnderNewIds(Predicate<Request> isMeant) {
    for (long requestId : requests.idsOf(it -> it.wasSent() && isMeant.test(it))) {
      Request request = requests.settle(requestId);
      if (!request.isAbandoned) {
        request.firstSentAt = Request.NEVER;
        request.wasSentBefore = false;
        requests.stage(request);
      }
    }
  }

  /**
   * Another leader may grant what is held in the memory of the last one. If that still leads, it is
   * told.
   */
  void leaderLost(LossReason reason) {
    if (leases == null) {
      return;
    }
    Set<Long> ended = Set.copyOf(leases.leaderLost());
    for (Hold hold : holdsWhere(it -> ended.contains(it.lease))) {
      hold.loss.report(reason);
      ask(Request.releaseOf(hold));
      if (!converting.containsKey(hold.lease)) {
        hold.end(reason);
      }
    }
  }

  List<Hold> holdsWhere(Predicate<Hold> isMeant) {
    return holds.values().stream().filter(isMeant).toList();
  }

  /** Takes a request in. Returns its id. */
  long ask(Request request) {
    if (request.caller != null) {
      callersWaitUntil = Math.min(callersWaitUntil, request.waitsUntil);
    }
    long requestId = requests.park(request);
    request.call = requestId;
    if (request.hold != null) {
      start(requestId);
    } else {
      requests.stageAgain(requestId);
    }
    if (request.kind() == KindCase.STATUS) {
      // The servers keep no answer to it.
      requests.markWaiting(requestId);
    }
    return requestId;
  }

  /** Sends a request about a hold, or lets it wait for the answer to the hold's conversion. */
  private void start(long requestId) {
    Request request = requests.get(requestId);
    if (request == null || request.hold == null) {
      return;
    }
    Hold hold = request.hold;
    List<Long> delayed = converting.get(hold.lease);
    if (delayed != null) {
      delayed.add(requestId);
      return;
    }
    if (!holds.containsKey(hold.key) || hold.hasEnded) {
      LossReason reason = hold.loss.reason();
      Outcome outcome = outcomeIfLost(request, reason == null ? LossReason.SESSION_CLOSED : reason);
      forgetHold(hold);
      settle(requestId, outcome);
      return;
    }
    switch (request.kind()) {
      case RELEASE -> {
        releasing.put(hold.key, holds.remove(hold.key));
        unwatch(hold);
      }
      case TRANSFER -> hold.heldAs.setLeaving(true);
      case CONVERT -> converting.put(hold.lease, new ArrayList<>());
      default -> {}
    }
    requests.stageAgain(requestId);
  }

  private void stopConverting(Hold hold) {
    List<Long> delayed = converting.remove(hold.lease);
    if (delayed != null) {
      delayed.forEach(this::start);
    }
  }

  /** The caller of an acquire or a convert is gone. What was granted meanwhile is released. */
  void abandon(long call) {
    if (call == 0) {
      // The session was never asked. Its own requests have that number.
      return;
    }
    long requestId = requests.findCall(call);
    Request request = requests.get(requestId);
    if (request == null) {
      holdsWhere(hold -> hold.call == call).forEach(hold -> ask(Request.releaseOf(hold)));
    } else if (!request.wasSent()) {
      boolean wasParked = request.isParked;
      requests.settle(requestId);
      if (!wasParked) {
        noteSettled(request);
      }
    } else {
      request.caller = null;
      request.isAbandoned = true;
      stageCancel(requestId, request);
    }
  }

  protected void stageCancel(long target, Request request) {
    requests.stage(Request.of(Operations.cancel(target, request.isBestEffort())));
  }

  /** Null if there is nothing to send. */
  ClientFrame nextFrame(long now) {
    if (!requests.hasStaged()) {
      return null;
    }
    // A session whose lease is over has probably ended. Acquires wait until the node has answered
    // something: a lost session keeps what it never sent for the next one.
    boolean isLeaseOver = leases != null && leases.sessionValidUntil() <= now;
    if (isLeaseOver) {
      stageHeartbeat(now);
    }
    Map<Long, Request> taken =
        requests.takeStaged(
            NAMES_PER_FRAME_MAX, it -> !isLeaseOver || it.wasSent() || !it.isAcquire());
    ClientFrame.Builder frame = ClientFrame.newBuilder().setAckedThrough(requests.ackedThrough());
    taken.forEach(
        (requestId, request) -> {
          frame.addOperations(request.operation(requestId));
          if (request.kind() == KindCase.RENEW && leases != null) {
            RenewRequest renew = request.template().getRenew();
            Long ttl = renew.hasTtlMs() ? renew.getTtlMs() * Leases.MS : null;
            leases.renewalSent(request.hold.lease, requestId, now, ttl);
            watchAgain(request.hold);
          }
          requests.markSent(request, now, now + request.ownWait() + answerPatience);
        });
    // A frame without operations would be a farewell.
    return taken.isEmpty() ? null : frame.build();
  }

  /** What was not answered will be sent again, except heartbeats: the resume does their work. */
  protected void streamBroke() {
    requests.takeOut(request -> request.kind() == KindCase.KEEP_ALIVE);
    retriesDue.clear();
    heartbeat = 0;
    requests.stageAllAgain();
  }

  /** The session is over: each holder and waiter is told. Acquires that it never sent are kept. */
  void end(LossReason reason, boolean keepsUnsent) {
    holds.values().forEach(hold -> hold.end(reason));
    holds.clear();
    releasing.clear();
    converting.clear();
    watched.clear();
    renewed.clear();
    Predicate<Request> isKept = it -> keepsUnsent && it.isAcquire() && !it.wasSent();
    for (Request request : requests.takeOut(isKept.negate())) {
      complete(request, outcomeIfLost(request, reason));
    }
    leases = null;
    denials.clear();
    openSentAt = Request.NEVER;
    heartbeat = 0;
    retriesDue.clear();
  }

  void complete(Request request, Outcome outcome) {
    Object caller = request.caller;
    request.caller = null;
    if (caller != null) {
      outputs.add(new Output.Completed(caller, outcome));
    }
    if (requests.isEmpty()) {
      callersWaitUntil = NEVER;
    }
  }

  /** Takes a request out, and tells its caller. */
  void settle(long requestId, Outcome outcome) {
    Request request = requests.settle(requestId);
    if (request != null) {
      noteSettled(request);
      complete(request, outcome);
    }
  }

  void noteSettled(Request request) {
    if (request.hold == null) {
      return;
    }
    switch (request.kind()) {
      case CONVERT -> stopConverting(request.hold);
      case RELEASE -> {
        if (releasing.remove(request.hold.key) != null) {
          forgetLease(request.hold);
        }
      }
      case RENEW -> {
        if (request.caller == null) {
          request.hold.isRenewing = false;
        }
      }
      default -> {}
    }
  }

  private void forgetHold(Hold hold) {
    if (holds.remove(hold.key) != null) {
      unwatch(hold);
      forgetLease(hold);
    }
  }

  private void forgetLease(Hold hold) {
    // Guards that entered the hold again may still need its lease.
    boolean mayBeShared = hold.lease != hold.key.entry() || hold.wasEntered;
    boolean isNeeded = mayBeShared && known().anyMatch(other -> other.lease == hold.lease);
    if (leases != null && !isNeeded) {
      leases.ended(hold.lease);
    }
  }

  private Stream<Hold> known() {
    return Stream.concat(holds.values().stream(), releasing.values().stream());
  }

  void endHolds(List<Hold> ended, LossReason reason) {
    for (Hold hold : ended) {
      hold.end(reason);
      forgetHold(hold);
    }
  }

  /** The hold of this name that an acquire has entered again, if its lease is known; else null. */
  Hold enteredBy(long acquire, String name) {
    Predicate<Hold> isMeant = it -> it.key.acquire() == acquire && it.name().equals(name);
    return known().filter(isMeant).filter(it -> it.validUntil() != 0).findFirst().orElse(null);
  }

  /** The program wants to hear of the loss, also if no message tells it. */
  public void watch(Hold hold) {
    if (holds.containsKey(hold.key)) {
      watched.add(hold);
      watchAgain(hold);
    }
  }

  void watchAgain(Hold hold) {
    if (watched.contains(hold)) {
      watchedUntil = Math.min(watchedUntil, hold.validUntil());
    }
  }

  private void unwatch(Hold hold) {
    watched.remove(hold);
    renewed.remove(hold);
  }

  void checkWatched(long now) {
    if (now < watchedUntil) {
      return;
    }
    watched.removeIf(hold -> isLost(hold, now));
    watchedUntil = watched.stream().mapToLong(Hold::validUntil).min().orElse(NEVER);
  }

  private static boolean isLost(Hold hold, long now) {
    try {
      hold.check(now);
      return false;
    } catch (LostException lost) {
      return true;
    }
  }

  void renewByItself(Hold hold, long ttl, long now) {
    hold.renews = ttl;
    hold.renewalDue = now + ttl / RENEWALS_PER_TTL;
    renewed.add(hold);
  }

  private void stageHeartbeat(long now) {
    if (leases != null && heartbeat == 0 && leases.heartbeatDue() <= now) {
      heartbeat = requests.stage(Request.of(Operations.keepAlive()));
    }
  }

  /** Heartbeats, renewals and retries whose time has come. */
  void stageDue(long now) {
    stageHeartbeat(now);
    renewed.removeIf(hold -> hold.loss.reason() != null);
    for (Hold hold : List.copyOf(renewed)) {
      if (hold.renewalDue <= now && !hold.isRenewing) {
        hold.isRenewing = true;
        hold.renewalDue = now + hold.renews / RENEWALS_PER_TTL;
        ask(Request.about(hold, Operations.renew(hold.renews / Leases.MS)));
      }
    }
    List<Long> due = new ArrayList<>();
    retriesDue.forEach(
        (requestId, dueAt) -> {
          if (dueAt <= now) {
            due.add(requestId);
          }
        });
    for (long requestId : due) {
      retriesDue.remove(requestId);
      requests.stageAgain(requestId);
    }
  }

  /** Callers who have waited as long as they wanted to. What they asked for goes on. */
  void letCallersGo(long now) {
    if (now < callersWaitUntil) {
      return;
    }
    long[] until = {NEVER};
    List<Request> over = new ArrayList<>();
    requests.forEach(
        (requestId, request) -> {
          if (request.caller != null && request.waitsUntil <= now) {
            over.add(request);
          } else if (request.caller != null) {
            until[0] = Math.min(until[0], request.waitsUntil);
          }
        });
    callersWaitUntil = until[0];
    over.forEach(it -> complete(it, Outcome.error(unavailable(it.wasSent()))));
  }

  public Supplier<HoldfastException> unavailable(boolean mayHaveHappened) {
    String words =
        errors.entrySet().stream()
            .map(error -> error.getKey() + ": " + error.getValue())
            .collect(Collectors.joining("; "));
    String message = words.isEmpty() ? "the request is still on its way" : words;
    return () -> new UnavailableException(message, mayHaveHappened);
  }

  /** When something is due, whatever the state of the connection. */
  long nextCallerDue() {
    return Math.min(callersWaitUntil, watchedUntil);
  }

  /** When something is due on an open stream. */
  long nextDue() {
    long due = requests.answersDueFrom();
    for (long retry : retriesDue.values()) {
      due = Math.min(due, retry);
    }
    for (Hold hold : renewed) {
      if (!hold.isRenewing) {
        due = Math.min(due, hold.renewalDue);
      }
    }
    if (leases != null && heartbeat == 0) {
      due = Math.min(due, leases.heartbeatDue());
    }
    return due;
  }

  /** What a request comes to if its hold, or its session, has ended. */
  private static Outcome outcomeIfLost(Request request, LossReason reason) {
    return switch (request.kind()) {
      // The end of the session freed the lock. One that the client was denied lives on.
      case RELEASE ->
          reason == LossReason.DENIED
              ? Outcome.error(() -> new LostException(reason))
              : Outcome.of(ReleaseOutcome.RELEASE_OUTCOME_EXPIRED);
      case CLOSE -> Outcome.done();
      default ->
          reason == LossReason.SESSION_CLOSED && request.hold == null
              ? Outcome.error(ClosedException::new)
              : Outcome.error(() -> new LostException(reason));
    };
  }
}
