/** What can go wrong. All errors of the library are a `HoldfastError`. */

/** The base of all errors of this library. */
export class HoldfastError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** Another holder has the lock, and the request was not to wait. */
export class Busy extends HoldfastError {
  constructor() {
    super("the lock is held; wait for it with waitMs, or try later");
  }
}

/** The lock did not become free within the wait. */
export class TimedOut extends HoldfastError {
  constructor() {
    super("the lock did not become free within the wait");
  }
}

/** The caller's `AbortSignal` aborted the request. `cause` is the signal's reason. */
export class Cancelled extends HoldfastError {
  constructor(reason: unknown) {
    super("the caller's signal aborted the request", { cause: reason });
  }
}

/** One that waits in a deadlock: each waits for the next, the last for the first. */
export interface CycleLink {
  /** The public id of the session. */
  session: string;
  actor: bigint;
  /** The lock that it waits for. */
  waitsFor: string;
}

/** To wait would have closed a cycle of waits. Release what you hold, and begin again. */
export class Deadlock extends HoldfastError {
  constructor(readonly cycle: CycleLink[]) {
    const links = cycle.map((link) => `session ${link.session} waits for ${link.waitsFor}`);
    super(`to wait would be a deadlock: ${links.join(", ")}; release what you hold`);
  }
}

/** An older actor is in the way. Release what you hold, and ask again with this `since`. */
export class Died extends HoldfastError {
  constructor(readonly since: bigint) {
    super(`an older actor is in the way; release what you hold and ask again with since=${since}`);
  }
}

/** Why a lock is no longer held. */
export type LossReason =
  | "expired"
  | "own_time_over"
  | "hold_ttl"
  | "max_hold"
  | "session_expired"
  | "session_closed"
  | "disconnected"
  | "wounded"
  | "broken"
  | "session_killed"
  | "transferred"
  | "leader_changed"
  | "leader_unreachable"
  | "denied"
  | "released"
  | "ended";

const LOSSES: Record<LossReason, string> = {
  expired: "no heartbeat was answered within the session's TTL, so the lock may have ended",
  own_time_over: "the hold's own time, its TTL or its maximum, is over",
  hold_ttl: "the hold's own TTL passed without a renewal",
  max_hold: "the hold reached its maximum time",
  session_expired: "the session expired",
  session_closed: "the session was closed",
  disconnected: "the connection broke and did not come back within the linger time",
  wounded: "an older actor took the lock away",
  broken: "an operator broke the lock",
  session_killed: "an operator ended the session",
  transferred: "the lock was handed to another session",
  leader_changed: "the leader changed, and with it ended what was held in the efficiency tier",
  leader_unreachable: "the connection to the leader was lost, and with it what was held in the efficiency tier",
  denied:
    "no node accepts this client any more, so it can neither keep the lock nor release it; the cluster ends the lock " +
    "when the session's TTL is over, or before. Give the client another credential",
  released: "the lock was released",
  ended: "the cluster ended the hold",
};

/** The lock is no longer held. `reason` says why. */
export class Lost extends HoldfastError {
  constructor(readonly reason: LossReason) {
    super(`the lock is lost: ${LOSSES[reason]}`);
  }
}

/** Limits can have room again later, a freeze ends, and groups come to agree; a wrong request stays wrong. */
const RETRYABLE = new Set([
  "too_many_sessions",
  "too_many_holds",
  "too_many_waits",
  "queue_full",
  "too_many_unacknowledged",
  "frozen",
  "quota_exceeded",
  "rate_limited",
  "wrong_group",
]);

/** The cluster refused the request. */
export class Rejected extends HoldfastError {
  /** Whether the same request may succeed later. */
  readonly retryable: boolean;

  constructor(
    /** As in the errors reference, for example `invalid_name`. */
    readonly reason: string,
    message: string,
    readonly mayHaveHappened = false,
  ) {
    super(message || reason);
    this.retryable = RETRYABLE.has(reason);
  }
}

/** The cluster does not know this client: its certificate or its credential is missing, wrong or over. */
export class Unauthenticated extends Rejected {}

/** The cluster knows this client, and its policy does not allow the request. */
export class PermissionDenied extends Rejected {}

/** The caller, or all that use the names with a prefix, have what their quota allows, or ask more often. */
export class QuotaExceeded extends Rejected {
  constructor(
    reason: string,
    message: string,
    mayHaveHappened = false,
    /** When the cluster would take the request, if it knows: it does for a rate. */
    readonly retryAfterMs?: number,
  ) {
    super(reason, message, mayHaveHappened);
  }
}

/**
 * The locks of a `lockAll` are in several groups of the cluster, so no group can grant them at one moment. Put the same
 * tag into their names: `{order-42}/header` and `{order-42}/lines` are in one group.
 */
export class SeveralGroups extends Rejected {}

/** The groups of the cluster did not agree on which of them has the lock. Nothing was done: try again later. */
export class WrongGroup extends Rejected {
  constructor(
    reason: string,
    message: string,
    mayHaveHappened = false,
    /** The epoch of the map of groups by which the group refused. */
    readonly mapEpoch = 0n,
  ) {
    super(reason, message, mayHaveHappened);
  }
}

/** No node answered in time. */
export class Unavailable extends HoldfastError {
  constructor(
    message: string,
    readonly mayHaveHappened: boolean,
  ) {
    super(`no answer from the cluster in time: ${message}`);
  }
}

/** The program closed the client. */
export class Closed extends HoldfastError {
  constructor() {
    super("the client is closed; open another one");
  }
}

/** The list of endpoints cannot be used. */
export class InvalidEndpoints extends HoldfastError {
  constructor(
    readonly kind: "empty" | "not_host_and_port",
    readonly part = "",
  ) {
    super(
      kind === "empty"
        ? "no endpoint given; write one or more host:port, separated by commas"
        : `'${part}' is not an endpoint; write host:port, for example 127.0.0.1:7420`,
    );
  }
}

/** Why a resource refuses a fencing token. */
export type FenceRefusal =
  | "best_effort"
  | "malformed"
  | "missing"
  | "not_best_effort"
  | "not_fenceable"
  | "other_resource"
  | "stale"
  | "zero";

/** A resource refused a fencing token. */
export class FenceRefused extends HoldfastError {
  constructor(
    readonly kind: FenceRefusal,
    message: string,
    /** The highest token that the resource has seen, if it is out of date. */
    readonly highest?: bigint,
  ) {
    super(message);
  }
}
