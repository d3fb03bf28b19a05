/** What answers and notices change. */

import {
  Busy,
  Closed,
  Deadlock,
  Died,
  type LossReason,
  Lost,
  PermissionDenied,
  QuotaExceeded,
  Rejected,
  SeveralGroups,
  TimedOut,
  Unauthenticated,
  WrongGroup,
} from "../errors.js";
import {
  type AcquireResponse,
  type Answer,
  type CancelResponse,
  type Deadlock as DeadlockAnswer,
  EndReason,
  type Failure,
  type Grant,
  type HoldEnded,
  Mode,
  type Notice,
  Reason,
  ReleaseOutcome,
  type ServerFrame,
  Tier,
} from "../gen/holdfast/v1/holdfast_pb.js";
import { HeldAs, Hold, isBestEffort, Loss } from "./hold.js";
import { MS, safeEnd, smaller } from "./lease.js";
import { Backoff } from "./pacing.js";
import { Entry } from "./requests.js";
import type { State } from "./state.js";

/** Reasons for which another node has to serve the session. */
const MOVES = new Set([
  Reason.NOT_LEADER,
  Reason.NO_QUORUM,
  Reason.SHUTTING_DOWN,
  Reason.OUT_OF_SPACE,
  Reason.AUDIT_UNAVAILABLE,
]);
/** Of a node, which knows the caller but not the history of the request. */
const DENIALS = new Set([Reason.PERMISSION_DENIED, Reason.UNAUTHENTICATED, Reason.CREDENTIAL_EXPIRED]);
/**
 * The time of a read is in no entry of the log. And a principal that was revoked may still give up what it has, which
 * does not keep its session alive.
 */
const NO_SAMPLES = new Set(["status", "close", "release", "cancel"]);
/** A node that tells more is asked again all the same: its quota may be another one by then. */
const RETRY_AFTER_MS_MAX = 60_000n;
const UNKNOWN = "an answer that this version does not know";
const LOSSES: Record<EndReason, LossReason> = {
  [EndReason.UNSPECIFIED]: "ended",
  [EndReason.TTL]: "hold_ttl",
  [EndReason.MAX_HOLD]: "max_hold",
  [EndReason.CLOSED]: "session_closed",
  [EndReason.DISCONNECTED]: "disconnected",
  [EndReason.WOUNDED]: "wounded",
  [EndReason.BROKEN]: "broken",
  [EndReason.KILLED]: "session_killed",
  [EndReason.TRANSFERRED]: "transferred",
  [EndReason.SESSION_EXPIRED]: "session_expired",
};

/** What a frame means for the stream it came on. Of several the one with the highest rank counts. */
export type Verdict =
  | { rank: 0; kind: "go_on" }
  | { rank: 1 | 2; kind: "move"; leader: string; words: string }
  | { rank: 3 | 4; kind: "session_lost"; reason: LossReason }
  | { rank: 5; kind: "closed" };

const GO_ON: Verdict = { rank: 0, kind: "go_on" };
const CLOSED: Verdict = { rank: 5, kind: "closed" };

function move(leader: string, words: string): Verdict {
  return { rank: leader ? 2 : 1, kind: "move", leader, words };
}

function sessionLost(reason: LossReason): Verdict {
  // What an answer was refused with ranks below a notice of the same frame, which tells more.
  return { rank: reason === "session_expired" ? 3 : 4, kind: "session_lost", reason };
}

export function rejected(failure: Failure): Rejected {
  const kinds: Partial<Record<Reason, typeof Rejected>> = {
    [Reason.UNAUTHENTICATED]: Unauthenticated,
    [Reason.CREDENTIAL_EXPIRED]: Unauthenticated,
    [Reason.PERMISSION_DENIED]: PermissionDenied,
    [Reason.SEVERAL_GROUPS]: SeveralGroups,
  };
  const reason = (Reason[failure.reason] ?? "unspecified").toLowerCase();
  if (failure.reason === Reason.QUOTA_EXCEEDED || failure.reason === Reason.RATE_LIMITED) {
    const told = Number(retryAfter(failure) / MS) || undefined;
    return new QuotaExceeded(reason, failure.message, failure.mayHaveHappened, told);
  }
  if (failure.reason === Reason.WRONG_GROUP) {
    return new WrongGroup(reason, failure.message, failure.mayHaveHappened, failure.mapEpoch);
  }
  return new (kinds[failure.reason] ?? Rejected)(reason, failure.message, failure.mayHaveHappened);
}

/** For how long the node refuses the same request; 0 if it does not say. */
export function retryAfter({ retryAfterMs }: Failure): bigint {
  return smaller(retryAfterMs, RETRY_AFTER_MS_MAX) * MS;
}

/** Whether the node does not accept the client, or does not allow the request. */
export function isDenial({ reason }: Failure): boolean {
  return DENIALS.has(reason);
}

/** Takes in the whole frame, whatever its first answers say: what is dropped here is not told again. */
export function onFrame(state: State, now: bigint, frame: ServerFrame): Verdict {
  const verdicts = [
    ...frame.answers.map((answer) => onAnswer(state, now, answer)),
    ...frame.notices.map((notice) => onNotice(state, notice)),
  ];
  return verdicts.reduce((strongest, next) => (next.rank > strongest.rank ? next : strongest), GO_ON);
}

function onAnswer(state: State, now: bigint, answer: Answer): Verdict {
  const { requestId, result } = answer;
  let verdict = GO_ON;
  if (result.case === "failure") {
    verdict = onFailure(state, now, requestId, result.value);
  } else if (result.case === undefined) {
    state.settle(requestId, new Rejected("unspecified", UNKNOWN, true));
  } else {
    noteTime(state, requestId, result.case, result.value.logicalTimeMs);
    verdict = onResult(state, now, requestId, result);
  }
  if (state.heartbeat === requestId && state.requests.get(requestId) === undefined) state.heartbeat = undefined;
  return verdict;
}

function noteTime(state: State, requestId: bigint, kind: string, logicalMs: bigint): void {
  const entry = state.requests.get(requestId);
  if (entry?.firstSentAt === undefined || state.leases === undefined || NO_SAMPLES.has(kind)) return;
  if (entry.isBestEffort) state.leases.answeredBestEffort(entry.firstSentAt, logicalMs);
  else state.leases.answered(entry.firstSentAt, logicalMs);
}

function onNotice(state: State, { kind }: Notice): Verdict {
  switch (kind.case) {
    case "queued": {
      const { requestId, position } = kind.value;
      const entry = state.requests.get(requestId);
      // The answer to a convert is not found again by what it holds: it stays unacknowledged.
      if (entry?.isAcquire) {
        if (entry.caller !== undefined) state.outputs.push({ do: "queued", caller: entry.caller, position });
        state.requests.markWaiting(requestId);
      }
      return GO_ON;
    }
    case "holdEnded":
      onHoldEnded(state, kind.value);
      return GO_ON;
    case "sessionEnded": {
      const { reason } = kind.value;
      return sessionLost(reason === EndReason.TTL ? "session_expired" : (LOSSES[reason] ?? "ended"));
    }
    case "leaderMoved":
      if (kind.value.leader) state.leaderLost("leader_changed");
      return move(kind.value.leader, "the leader moved");
    case "membersChanged":
      state.endpointsTold = kind.value.endpoints;
      return GO_ON;
    default:
      return GO_ON;
  }
}

function onHoldEnded(state: State, { name, token, acquireRequestId, reason }: HoldEnded): void {
  if (name) {
    const isMeant = (hold: Hold) => hold.acquire === acquireRequestId && hold.name === name;
    state.endHolds(isMeant, LOSSES[reason] ?? "ended");
    return;
  }
  // It was lost while no notice could come. Readers share a token, so of them the acquire is told as well.
  const isMeant = (hold: Hold) => {
    if (hold.heldAs.token !== token || hold.isBestEffort) return false;
    return hold.heldAs.mode === Mode.SHARED ? hold.acquire === acquireRequestId : acquireRequestId === 0n;
  };
  state.endHolds(isMeant, "ended");
}

function onFailure(state: State, now: bigint, requestId: bigint, failure: Failure): Verdict {
  const { reason, message } = failure;
  const leader = state.leaderIn(failure);
  const entry = state.requests.get(requestId);
  if (reason === Reason.UNKNOWN_SESSION) return sessionLost("session_expired");
  if (failure.retryable) {
    if (MOVES.has(reason)) return move(leader, message);
    if (entry === undefined) return GO_ON;
    const told = retryAfter(failure);
    if (told === 0n || mayWait(entry, now, told)) {
      onSentBack(state, now + told, requestId, entry);
      return GO_ON;
    }
  }
  if (entry === undefined) return GO_ON;
  if (reason === Reason.ANSWER_DISCARDED && state.requests.isWaiting(requestId)) {
    state.settle(requestId, waitEndedUnseen(entry, now));
    return GO_ON;
  }
  // A session that may not even be kept alive is better resumed elsewhere.
  if (entry.kind === "keepAlive") return move(leader, message);
  if (entry.kind === "close") {
    // Refused or not, the client is done with its session.
    state.settle(requestId, undefined);
    return CLOSED;
  }
  if (entry.wasSentBefore && DENIALS.has(reason)) {
    failure.mayHaveHappened = true;
    if (entry.canWait) {
      cancelDeniedCopy(state, requestId, entry, failure);
      return GO_ON;
    }
  }
  state.settle(requestId, refused(state, requestId, entry, failure));
  return GO_ON;
}

/** Tells the caller. A cancel finds out what became of the earlier copy: every client may cancel. */
function cancelDeniedCopy(state: State, requestId: bigint, entry: Entry, failure: Failure): void {
  if (entry.isAbandoned) return;
  entry.isAbandoned = true;
  state.stageCancel(requestId, entry);
  state.complete(entry, rejected(failure));
}

/** Whether the caller still waits when the request may be sent again. One that may have been carried out must be. */
function mayWait(entry: Entry, now: bigint, told: bigint): boolean {
  if (entry.wasSentBefore || entry.caller === undefined) return true;
  return now + Backoff.longestAfter(told) < entry.waitsUntil;
}

function onSentBack(state: State, notBefore: bigint, requestId: bigint, entry: Entry): void {
  entry.answerDue = undefined;
  if (entry.isWorthRetrying) {
    state.retriesDue.set(requestId, notBefore + state.backoff.nextDelay());
  } else if (!entry.isAbandoned) {
    state.requests.settle(requestId);
    state.noteSettled(entry);
  }
  // The cancel of an abandoned one is on the way, and settles both. Until then an earlier copy may be granted.
}

/** A wait that was acknowledged ended while there was no stream, and nothing is held by it. */
function waitEndedUnseen(entry: Entry, now: bigint): TimedOut | Lost {
  const sentAt = entry.firstSentAt;
  const mayBeOver = sentAt === undefined || safeEnd(sentAt, entry.ownWait) <= now;
  // Too early for a timeout: it was granted, and the hold's own time is over.
  return mayBeOver ? new TimedOut() : new Lost("ended");
}

function refused(state: State, requestId: bigint, entry: Entry, failure: Failure): Lost | Rejected {
  const { hold } = entry;
  const { reason, mayHaveHappened } = failure;
  if (entry.isAcquire && reason === Reason.GRANT_ENDED) return new Lost("ended");
  if (hold === undefined) return rejected(failure);
  const isGone = reason === Reason.NOT_HELD || (entry.kind === "convert" && reason === Reason.GRANT_ENDED);
  if (isGone && entry.kind !== "release") {
    state.endHolds(isSameHold(hold), "ended");
    hold.end("ended");
    return new Lost(hold.loss.reason ?? "ended");
  }
  // If it may have been done, the guard stays without a token.
  if (entry.kind === "transfer") hold.heldAs.isLeaving = mayHaveHappened && reason !== Reason.NO_SUCH_WAITER;
  if (entry.kind === "renew" && !mayHaveHappened) state.leases?.renewalRefused(hold.lease, requestId);
  return rejected(failure);
}

function isSameHold(hold: Hold): (other: Hold) => boolean {
  return (other) => other.acquire === hold.acquire && other.name === hold.name;
}

function onResult(state: State, now: bigint, requestId: bigint, result: Answer["result"]): Verdict {
  const entry = state.requests.settle(requestId);
  if (entry === undefined) return GO_ON;
  const { hold } = entry;
  let outcome: unknown;
  // The answer to an acquire-all and to a convert is that of an acquire.
  if ((entry.canWait ? "acquire" : entry.kind) !== result.case) {
    outcome = new Rejected("unspecified", "an answer that does not fit its request", true);
  } else if (result.case === "acquire") {
    outcome = hold ? converted(hold, result.value) : acquired(state, now, requestId, entry, result.value);
  } else if (result.case === "cancel") {
    onCancelled(state, entry.fields.target ?? 0n, result.value);
  } else if (result.case === "release") {
    outcome = (ReleaseOutcome[result.value.outcome] ?? "unspecified").toLowerCase();
  } else if (result.case === "renew" && hold !== undefined) {
    state.leases?.renewed(hold.lease, requestId, result.value.deadlineMs);
    state.watchAgain(hold);
  } else if (result.case === "transfer" && hold !== undefined) {
    state.endHolds(isSameHold(hold), "transferred");
    outcome = result.value.token;
  } else if (result.case === "status") {
    outcome = result.value;
  }
  state.noteSettled(entry);
  state.complete(entry, outcome);
  return result.case === "close" && entry.kind === "close" ? CLOSED : GO_ON;
}

function deadlock({ cycle }: DeadlockAnswer): Deadlock {
  const links = cycle.map(({ publicSessionId, actor, waitsFor }) => ({ session: publicSessionId, actor, waitsFor }));
  return new Deadlock(links);
}

function converted(hold: Hold, { outcome }: AcquireResponse): unknown {
  switch (outcome.case) {
    case "granted":
      hold.heldAs.convert(outcome.value);
      return undefined;
    case "busy":
      return new Busy();
    case "timedOut":
    case "cancelled":
      return new TimedOut();
    case "deadlock":
      return deadlock(outcome.value);
    default:
      return new Rejected("unspecified", UNKNOWN, true);
  }
}

function acquired(state: State, now: bigint, requestId: bigint, entry: Entry, response: AcquireResponse): unknown {
  const { outcome, logicalTimeMs } = response;
  switch (outcome.case) {
    case "granted":
      return takeGrants(state, now, requestId, entry, [outcome.value], logicalTimeMs);
    case "allGranted":
      return takeGrants(state, now, requestId, entry, outcome.value.grants, logicalTimeMs);
    case "busy":
      return new Busy();
    case "timedOut":
      return new TimedOut();
    case "deadlock":
      return deadlock(outcome.value);
    case "died":
      return new Died(outcome.value.sinceMs);
    case "cancelled":
      // Only this client cancels, and only when the caller is gone.
      return new Closed();
    default:
      return new Rejected("unspecified", UNKNOWN, true);
  }
}

function takeGrants(
  state: State,
  now: bigint,
  requestId: bigint,
  entry: Entry,
  grants: Grant[],
  logicalMs: bigint,
): unknown {
  if (entry.caller === undefined || entry.isAbandoned) {
    giveBack(state, requestId, grants);
    return new Closed();
  }
  const names = (entry.fields.members ?? []).map((member) => member.name);
  // A retry is told what is still held, and some may have ended in the meantime.
  if (names.length > 0 && grants.length !== names.length) {
    giveBack(state, requestId, grants);
    return new Lost("ended");
  }
  const inOrder = [...grants].sort((a, b) => names.indexOf(a.name) - names.indexOf(b.name));
  const { sinceMs } = entry.fields;
  const since = sinceMs !== undefined && sinceMs > logicalMs ? logicalMs : sinceMs;
  const loss = new Loss();
  const holds = inOrder.map((grant) => takeHold(state, requestId, entry, grant, loss, since));
  if (entry.renews !== undefined) for (const hold of holds) state.renewByItself(hold, entry.renews, now);
  return holds;
}

function takeHold(
  state: State,
  requestId: bigint,
  { call }: Entry,
  grant: Grant,
  loss: Loss,
  since: bigint | undefined,
): Hold {
  const { leases } = state;
  if (leases === undefined) throw new Error("a grant came without a session");
  const acquire = grant.acquireRequestId || requestId;
  const entry = state.hasHold(acquire, requestId) ? state.requests.reserveId() : requestId;
  // A hold that is entered again keeps its lease, with the renewals that are under way.
  const entered = acquire === requestId ? undefined : state.enteredBy(acquire, grant.name);
  if (entered !== undefined) {
    entered.wasEntered = true;
    entered.heldAs.convert(grant);
  }
  const lease = entered?.lease ?? entry;
  const heldAs = entered?.heldAs ?? new HeldAs(grant);
  const hold = new Hold({ acquire, entry, lease, call, grant, heldAs, leases, loss, since });
  if (entered === undefined) leases.granted(lease, grant.deadlineMs, hold.isBestEffort);
  state.holds.set(hold.key, hold);
  return hold;
}

/** The request is settled here if its own answer has not come, so exactly one of the two leads to a release. */
function onCancelled(state: State, target: bigint, { outcome }: CancelResponse): void {
  const entry = state.requests.settle(target);
  if (entry === undefined) return;
  const one = outcome.case === "alreadyGranted" ? [outcome.value] : [];
  const grants = outcome.case === "allAlreadyGranted" ? outcome.value.grants : one;
  if (entry.hold !== undefined) {
    // The hold is the guard's, whether it was converted or not.
    for (const grant of grants) entry.hold.heldAs.convert(grant);
  } else {
    giveBack(state, target, grants);
  }
  state.noteSettled(entry);
}

/** Releases what was granted and is not wanted. */
function giveBack(state: State, requestId: bigint, grants: Grant[]): void {
  for (const grant of grants) {
    const { name, token } = grant;
    const tier = isBestEffort(grant) ? Tier.EFFICIENCY : Tier.CORRECTNESS;
    const acquireRequestId = grant.acquireRequestId || requestId;
    state.requests.stage(new Entry("release", { name, token, acquireRequestId, tier }));
  }
}
