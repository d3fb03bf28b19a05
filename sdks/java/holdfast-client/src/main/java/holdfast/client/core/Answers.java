package holdfast.client.core;

import holdfast.client.errors.BusyException;
import holdfast.client.errors.ClosedException;
import holdfast.client.errors.DeadlockException;
import holdfast.client.errors.DiedException;
import holdfast.client.errors.LossReason;
import holdfast.client.errors.LostException;
import holdfast.client.errors.TimedOutException;
import holdfast.v1.AcquireResponse;
import holdfast.v1.Answer;
import holdfast.v1.Answer.ResultCase;
import holdfast.v1.CancelResponse;
import holdfast.v1.Deadlock;
import holdfast.v1.EndReason;
import holdfast.v1.Failure;
import holdfast.v1.Grant;
import holdfast.v1.HoldEnded;
import holdfast.v1.Member;
import holdfast.v1.Mode;
import holdfast.v1.Notice;
import holdfast.v1.Operation.KindCase;
import holdfast.v1.Queued;
import holdfast.v1.Reason;
import holdfast.v1.ServerFrame;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/** What answers and notices change. */
final class Answers {
  private static final String UNKNOWN = "an answer that this version does not know";

  private final State state;
  private final long now;

  private Answers(State state, long now) {
    this.state = state;
    this.now = now;
  }

  /** Takes in the whole frame, whatever its first answers say: it is not told again. */
  static Verdict onFrame(State state, long now, ServerFrame frame) {
    Answers answers = new Answers(state, now);
    Verdict verdict = Verdict.GO_ON;
    for (Answer answer : frame.getAnswersList()) {
      verdict = verdict.strongerOf(answers.onAnswer(answer));
    }
    for (Notice notice : frame.getNoticesList()) {
      verdict = verdict.strongerOf(answers.onNotice(notice));
    }
    return verdict;
  }

  private Verdict onAnswer(Answer answer) {
    long requestId = answer.getRequestId();
    Verdict verdict = Verdict.GO_ON;
    state.noteTime(now, answer);
    switch (answer.getResultCase()) {
      case FAILURE -> verdict = onFailure(requestId, answer.getFailure());
      case RESULT_NOT_SET -> state.settle(requestId, Failures.unknown(UNKNOWN));
      default -> {
        verdict = onResult(answer);
      }
    }
    if (state.heartbeat == requestId && state.requests.get(requestId) == null) {
      state.heartbeat = 0;
    }
    return verdict;
  }

  private Verdict onNotice(Notice notice) {
    switch (notice.getKindCase()) {
      case QUEUED -> onQueued(notice.getQueued());
      case HOLD_ENDED -> onHoldEnded(notice.getHoldEnded());
      case SESSION_ENDED -> {
        EndReason reason = notice.getSessionEnded().getReason();
        boolean isTtl = reason == EndReason.END_REASON_TTL;
        return Verdict.sessionLost(isTtl ? LossReason.SESSION_EXPIRED : lossOf(reason));
      }
      case LEADER_MOVED -> {
        String leader = notice.getLeaderMoved().getLeader();
        if (!leader.isEmpty()) {
          state.leaderLost(LossReason.LEADER_CHANGED);
        }
        return Verdict.move(leader, "the leader moved");
      }
      case MEMBERS_CHANGED -> state.endpointsTold = notice.getMembersChanged().getEndpointsList();
      case KIND_NOT_SET -> {}
    }
    return Verdict.GO_ON;
  }

  private void onQueued(Queued queued) {
    Request request = state.requests.get(queued.getRequestId());
    // The answer to a convert is not found again by what it holds: it stays unacknowledged.
    if (request != null && request.isAcquire()) {
      if (request.caller != null) {
        state.outputs.add(new Output.Queued(request.caller, queued.getPosition()));
      }
      state.requests.markWaiting(queued.getRequestId());
    }
  }

  private void onHoldEnded(HoldEnded ended) {
    long acquire = ended.getAcquireRequestId();
    if (ended.getName().isEmpty()) {
      state.endHolds(lostUnseen(ended.getToken(), acquire), LossReason.ENDED);
      return;
    }
    List<Hold> meant =
        state.holdsWhere(it -> it.key.acquire() == acquire && it.name().equals(ended.getName()));
    state.endHolds(meant, lossOf(ended.getReason()));
  }

  private static LossReason lossOf(EndReason reason) {
    return switch (reason) {
      case END_REASON_TTL -> LossReason.HOLD_TTL;
      case END_REASON_MAX_HOLD -> LossReason.MAX_HOLD;
      case END_REASON_CLOSED -> LossReason.SESSION_CLOSED;
      case END_REASON_DISCONNECTED -> LossReason.DISCONNECTED;
      case END_REASON_WOUNDED -> LossReason.WOUNDED;
      case END_REASON_BROKEN -> LossReason.BROKEN;
      case END_REASON_KILLED -> LossReason.SESSION_KILLED;
      case END_REASON_TRANSFERRED -> LossReason.TRANSFERRED;
      case END_REASON_SESSION_EXPIRED -> LossReason.SESSION_EXPIRED;
      case END_REASON_UNSPECIFIED, UNRECOGNIZED -> LossReason.ENDED;
    };
  }

  /**
   * What was lost while no notice could come. Readers share a token, so of them the acquire is told
   * as well.
   */
  private List<Hold> lostUnseen(long token, long acquire) {
    return state.holdsWhere(
        hold -> {
          if (hold.terms().token() != token || hold.isBestEffort()) {
            return false;
          }
          boolean isShared = hold.terms().mode() == Mode.MODE_SHARED;
          return isShared ? hold.key.acquire() == acquire : acquire == 0;
        });
  }

  private Verdict onFailure(long requestId, Failure told) {
    Failure failure = state.withoutOtherLeader(told);
    Reason reason = failure.getReason();
    state.noteMapEpoch(failure.getMapEpoch());
    Request request = state.requests.get(requestId);
    if (reason == Reason.REASON_UNKNOWN_SESSION) {
      return Verdict.sessionLost(LossReason.SESSION_EXPIRED);
    }
    if (failure.getRetryable()) {
      if (isMove(reason)) {
        return Verdict.move(failure.getLeader(), failure.getMessage());
      }
      long pause = Failures.retryAfter(failure);
      if (request == null || pause == 0 || mayWait(request, pause)) {
        onSentBack(requestId, request, now + pause);
        return Verdict.GO_ON;
      }
    }
    if (request == null) {
      return Verdict.GO_ON;
    }
    if (reason == Reason.REASON_ANSWER_DISCARDED && state.requests.isWaiting(requestId)) {
      state.settle(requestId, waitEndedUnseen(request));
      return Verdict.GO_ON;
    }
    if (request.kind() == KindCase.KEEP_ALIVE) {
      // A session that may not even be kept alive is better resumed elsewhere.
      return Verdict.move(failure.getLeader(), failure.getMessage());
    }
    if (request.kind() == KindCase.CLOSE) {
      // Refused or not, the client is done with its session.
      state.settle(requestId, Outcome.done());
      return Verdict.CLOSED;
    }
    // Such a node knows the caller, but not the history of the request.
    if (request.wasSentBefore && Failures.isDenial(failure)) {
      Failure mayHaveHappened = failure.toBuilder().setMayHaveHappened(true).build();
      if (request.canWait()) {
        cancelDeniedCopy(requestId, request, mayHaveHappened);
      } else {
        state.settle(requestId, refused(requestId, request, mayHaveHappened));
      }
      return Verdict.GO_ON;
    }
    state.settle(requestId, refused(requestId, request, failure));
    return Verdict.GO_ON;
  }

  /**
   * Tells the caller. A cancel finds out what became of the earlier copy: every client may cancel.
   */
  private void cancelDeniedCopy(long requestId, Request request, Failure failure) {
    if (!request.isAbandoned) {
      request.isAbandoned = true;
      state.stageCancel(requestId, request);
      state.complete(request, Outcome.refused(failure));
    }
  }

  /** Reasons for which another node has to serve the session. */
  private static boolean isMove(Reason reason) {
    return switch (reason) {
      case REASON_NOT_LEADER,
          REASON_NO_QUORUM,
          REASON_SHUTTING_DOWN,
          REASON_OUT_OF_SPACE,
          REASON_AUDIT_UNAVAILABLE ->
          true;
      default -> false;
    };
  }

  /**
   * Whether the caller still waits when the request may be sent again. One that may have been
   * carried out must be.
   */
  private boolean mayWait(Request request, long told) {
    return request.wasSentBefore
        || request.caller == null
        || now + Backoff.longestAfter(told) < request.waitsUntil;
  }

  private void onSentBack(long requestId, Request request, long notBefore) {
    if (request == null) {
      return;
    }
    request.answerDue = Request.NEVER;
    if (request.isWorthRetrying()) {
      state.retriesDue.put(requestId, notBefore + state.backoff.nextDelay());
    } else if (!request.isAbandoned) {
      state.requests.settle(requestId);
      state.noteSettled(request);
    }
    // The cancel of an abandoned one is on the way, and settles both. Until then an earlier copy
    // may be granted.
  }

  /** A wait that was acknowledged ended while there was no stream, and nothing is held by it. */
  private Outcome waitEndedUnseen(Request request) {
    boolean mayBeOver =
        !request.wasSent() || Leases.certainEnd(request.firstSentAt, request.ownWait()) <= now;
    // Too early for a timeout: it was granted, and the hold's own time is over.
    return mayBeOver ? Outcome.error(TimedOutException::new) : lost(LossReason.ENDED);
  }

  private static Outcome lost(LossReason reason) {
    return Outcome.error(() -> new LostException(reason));
  }

  private Outcome refused(long requestId, Request request, Failure failure) {
    Reason reason = failure.getReason();
    if (request.isAcquire() && reason == Reason.REASON_GRANT_ENDED) {
      return lost(LossReason.ENDED);
    }
    Hold hold = request.hold;
    if (hold == null) {
      return Outcome.refused(failure);
    }
    boolean isGone =
        switch (request.kind()) {
          case RENEW, PROCLAIM, TRANSFER -> reason == Reason.REASON_NOT_HELD;
          case CONVERT -> reason == Reason.REASON_NOT_HELD || reason == Reason.REASON_GRANT_ENDED;
          default -> false;
        };
    if (isGone) {
      state.endHolds(state.holdsWhere(hold::isSameAs), LossReason.ENDED);
      hold.end(LossReason.ENDED);
      return lost(hold.loss.reason());
    }
    boolean mayHaveHappened = failure.getMayHaveHappened();
    if (request.kind() == KindCase.TRANSFER) {
      // If it may have been done, the guard stays without a token.
      hold.heldAs.setLeaving(mayHaveHappened && reason != Reason.REASON_NO_SUCH_WAITER);
    }
    if (request.kind() == KindCase.RENEW && !mayHaveHappened && state.leases != null) {
      state.leases.renewalRefused(hold.lease, requestId);
    }
    return Outcome.refused(failure);
  }

  private Verdict onResult(Answer answer) {
    long requestId = answer.getRequestId();
    Request request = state.requests.settle(requestId);
    if (request == null) {
      return Verdict.GO_ON;
    }
    Outcome outcome = Outcome.done();
    if (!fits(request, answer.getResultCase())) {
      outcome = Failures.unknown("an answer that does not fit its request");
    } else {
      switch (request.kind()) {
        case CONVERT -> outcome = converted(request.hold, answer.getAcquire());
        case ACQUIRE, ACQUIRE_ALL -> outcome = acquired(requestId, request, answer.getAcquire());
        case CANCEL -> {
          onCancelled(request.template().getCancel().getTarget(), answer.getCancel());
          return Verdict.GO_ON;
        }
        case RELEASE -> outcome = Outcome.of(answer.getRelease().getOutcome());
        case RENEW -> {
          Long deadlineMs =
              answer.getRenew().hasDeadlineMs() ? answer.getRenew().getDeadlineMs() : null;
          if (state.leases != null) {
            state.leases.renewed(request.hold.lease, requestId, deadlineMs);
          }
          state.watchAgain(request.hold);
        }
        case TRANSFER -> {
          state.endHolds(state.holdsWhere(request.hold::isSameAs), LossReason.TRANSFERRED);
          outcome = Outcome.of(answer.getTransfer().getToken());
        }
        case CLOSE -> {
          state.complete(request, outcome);
          return Verdict.CLOSED;
        }
        case STATUS -> outcome = Outcome.of(answer.getStatus());
        default -> {}
      }
    }
    state.noteSettled(request);
    state.complete(request, outcome);
    return Verdict.GO_ON;
  }

  /** The answer to an acquire-all and to a convert is that of an acquire. */
  private static boolean fits(Request request, ResultCase result) {
    String asked = request.canWait() ? KindCase.ACQUIRE.name() : request.kind().name();
    return asked.equals(result.name());
  }

  private static Outcome deadlock(Deadlock deadlock) {
    List<DeadlockException.Link> cycle = new ArrayList<>();
    deadlock
        .getCycleList()
        .forEach(
            link ->
                cycle.add(
                    new DeadlockException.Link(
                        link.getPublicSessionId(), link.getActor(), link.getWaitsFor())));
    return Outcome.error(() -> new DeadlockException(cycle));
  }

  private static Outcome converted(Hold hold, AcquireResponse result) {
    return switch (result.getOutcomeCase()) {
      case GRANTED -> {
        hold.heldAs.convert(result.getGranted());
        yield Outcome.done();
      }
      case BUSY -> Outcome.error(BusyException::new);
      case TIMED_OUT, CANCELLED -> Outcome.error(TimedOutException::new);
      case DEADLOCK -> deadlock(result.getDeadlock());
      default -> Failures.unknown(UNKNOWN);
    };
  }

  private Outcome acquired(long requestId, Request request, AcquireResponse result) {
    List<Grant> grants =
        switch (result.getOutcomeCase()) {
          case GRANTED -> List.of(result.getGranted());
          case ALL_GRANTED -> result.getAllGranted().getGrantsList();
          default -> null;
        };
    if (grants == null) {
      return notGranted(result);
    }
    if (request.caller == null || request.isAbandoned) {
      giveBack(requestId, grants);
      return Outcome.error(ClosedException::new);
    }
    return takeHolds(requestId, request, grants, result.getLogicalTimeMs());
  }

  private static Outcome notGranted(AcquireResponse result) {
    return switch (result.getOutcomeCase()) {
      case BUSY -> Outcome.error(BusyException::new);
      case TIMED_OUT -> Outcome.error(TimedOutException::new);
      case DEADLOCK -> deadlock(result.getDeadlock());
      case DIED -> {
        long since = result.getDied().getSinceMs();
        yield Outcome.error(() -> new DiedException(since));
      }
      // Only this client cancels, and only when the caller is gone.
      case CANCELLED -> Outcome.error(ClosedException::new);
      default -> Failures.unknown(UNKNOWN);
    };
  }

  private Outcome takeHolds(long requestId, Request request, List<Grant> grants, long atMs) {
    List<Grant> wanted = grants;
    if (request.kind() == KindCase.ACQUIRE_ALL) {
      List<String> members =
          request.template().getAcquireAll().getMembersList().stream()
              .map(Member::getName)
              .toList();
      // A retry is told what is still held, and some may have ended in the meantime.
      if (grants.size() != members.size()) {
        giveBack(requestId, grants);
        return lost(LossReason.ENDED);
      }
      wanted = new ArrayList<>(grants);
      wanted.sort(Comparator.comparingInt(grant -> members.indexOf(grant.getName())));
    }
    Long since = request.since();
    Long age = since == null ? null : Math.min(since, atMs);
    Loss loss = new Loss();
    List<Hold> holds = new ArrayList<>();
    for (Grant grant : wanted) {
      Hold hold = takeHold(requestId, request, grant, loss, age);
      if (request.renews > 0) {
        state.renewByItself(hold, request.renews, now);
      }
      holds.add(hold);
    }
    return Outcome.of(List.copyOf(holds));
  }

  private Hold takeHold(long requestId, Request request, Grant grant, Loss loss, Long since) {
    long told = grant.getAcquireRequestId();
    long acquire = told == 0 ? requestId : told;
    boolean isTaken = state.holds.containsKey(new Hold.Key(acquire, requestId));
    long number = isTaken ? state.requests.reserveId() : requestId;
    // A hold that is entered again keeps its lease, with the renewals that are under way.
    Hold entered = acquire == requestId ? null : state.enteredBy(acquire, grant.getName());
    long lease = number;
    HeldAs heldAs;
    if (entered == null) {
      heldAs = new HeldAs(grant);
    } else {
      entered.wasEntered = true;
      entered.heldAs.convert(grant);
      heldAs = entered.heldAs;
      lease = entered.lease;
    }
    Hold.Key key = new Hold.Key(acquire, number);
    Hold hold = new Hold(key, lease, request.call, grant, heldAs, state.leases, loss, since);
    if (entered == null) {
      Long deadlineMs = grant.hasDeadlineMs() ? grant.getDeadlineMs() : null;
      state.leases.granted(lease, deadlineMs, hold.isBestEffort());
    }
    state.holds.put(key, hold);
    return hold;
  }

  /** The request is settled here if its own answer has not come, so one of the two releases. */
  private void onCancelled(long target, CancelResponse result) {
    Request request = state.requests.settle(target);
    if (request == null) {
      return;
    }
    List<Grant> grants =
        switch (result.getOutcomeCase()) {
          case ALREADY_GRANTED -> List.of(result.getAlreadyGranted());
          case ALL_ALREADY_GRANTED -> result.getAllAlreadyGranted().getGrantsList();
          default -> List.of();
        };
    if (request.kind() == KindCase.CONVERT) {
      // The hold is the guard's, whether it was converted or not.
      grants.forEach(request.hold.heldAs::convert);
    } else {
      giveBack(target, grants);
    }
    state.noteSettled(request);
  }

  /** Releases what was granted and is not wanted. */
  private void giveBack(long requestId, List<Grant> grants) {
    for (Grant grant : grants) {
      state.requests.stage(Request.of(Operations.release(grant, requestId)));
    }
  }
}
