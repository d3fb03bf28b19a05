/**
 * How long a client may trust its locks. Times are nanoseconds of the local clock, or milliseconds of logical time.
 *
 * A request that was sent at S and answered with the logical time L is a sample. With it, a deadline D cannot pass
 * before `S + (D - L) x 0.98 - 2 ms`. `docs/protocol.md` derives that.
 */

export const MS = 1_000_000n;

/** The margin is an object so that the driver of the conformance suite can break the rule. */
export const margin = {
  /** In hundredths: 1 % for the cluster's clock and 1 % for ours. */
  percent: 2n,
  /** Logical times are cut to whole milliseconds, two of them. */
  slack: 2n * MS,
};

export function smaller(a: bigint, b: bigint): bigint {
  return a < b ? a : b;
}

export function larger(a: bigint, b: bigint): bigint {
  return a > b ? a : b;
}

/** The earliest of the times that are known. */
export function earliest(times: Iterable<bigint | undefined>): bigint | undefined {
  let first: bigint | undefined;
  for (const time of times) {
    if (time !== undefined && (first === undefined || time < first)) first = time;
  }
  return first;
}

/** A span that began after `sentAt` is certainly not over before then. */
export function safeEnd(sentAt: bigint, span: bigint): bigint {
  return sentAt + larger(0n, (span * (100n - margin.percent)) / 100n - margin.slack);
}

class Sample {
  constructor(
    readonly sentAt: bigint,
    readonly logicalMs: bigint,
  ) {}

  get quality(): bigint {
    return this.sentAt * 100n - this.logicalMs * MS * 98n;
  }

  safeEndOf(deadlineMs: bigint): bigint {
    return safeEnd(this.sentAt, larger(0n, deadlineMs - this.logicalMs) * MS);
  }
}

interface UnansweredRenewal {
  /** A renewal can shorten a hold when it is applied, not when its answer comes. Undefined: it keeps the TTL. */
  end: bigint | undefined;
  /** Another one was answered since this one was sent. Which of the two was applied last is not known. */
  isOvertaken: boolean;
}

interface HoldLease {
  isBestEffort: boolean;
  ownDeadline: bigint | undefined;
  ownSpan: bigint;
  unansweredRenewals: Map<bigint, UnansweredRenewal>;
}

/** The leases of one session and of its holds. */
export class Leases {
  /** The servers may end the session a TTL after its last answered request, or a linger after its connection. */
  readonly span: bigint;
  private best: Sample;
  private lastAnsweredSentAt: bigint;
  private bestEffort: Sample | undefined;
  private readonly holds = new Map<bigint, HoldLease>();

  constructor(sentAt: bigint, logicalMs: bigint, ttl: bigint, linger: bigint) {
    this.span = smaller(ttl, linger);
    this.best = new Sample(sentAt, logicalMs);
    this.lastAnsweredSentAt = sentAt;
  }

  /** A request took effect. Refusals are not reported here. */
  answered(sentAt: bigint, logicalMs: bigint): void {
    const sample = new Sample(sentAt, logicalMs);
    if (sample.quality > this.best.quality) this.best = sample;
    this.lastAnsweredSentAt = larger(this.lastAnsweredSentAt, sentAt);
  }

  /** As `answered`, for the efficiency tier: it does not keep the session alive. */
  answeredBestEffort(sentAt: bigint, logicalMs: bigint): void {
    const sample = new Sample(sentAt, logicalMs);
    if (this.bestEffort === undefined || sample.quality > this.bestEffort.quality) this.bestEffort = sample;
  }

  /** Another leader has another clock. */
  bestEffortRestarts(): void {
    this.bestEffort = undefined;
  }

  /** Ends the holds of the efficiency tier, and returns which they were. */
  leaderLost(): Set<bigint> {
    const ended = [...this.holds].filter(([, lease]) => lease.isBestEffort).map(([hold]) => hold);
    for (const hold of ended) this.holds.delete(hold);
    return new Set(ended);
  }

  granted(hold: bigint, deadlineMs: bigint | undefined, isBestEffort = false): void {
    const lease = { isBestEffort, ownDeadline: deadlineMs, ownSpan: 0n, unansweredRenewals: new Map() };
    this.insert(hold, lease);
  }

  private insert(hold: bigint, lease: HoldLease): void {
    const sample = this.sampleFor(lease);
    const { ownDeadline } = lease;
    const isKnown = ownDeadline !== undefined && sample !== undefined;
    lease.ownSpan = isKnown ? larger(0n, ownDeadline - sample.logicalMs) * MS : 0n;
    this.holds.set(hold, lease);
  }

  /** Of several sendings the first counts. */
  renewalSent(hold: bigint, renewal: bigint, sentAt: bigint, ttl: bigint | undefined): void {
    const renewals = this.holds.get(hold)?.unansweredRenewals;
    if (renewals !== undefined && !renewals.has(renewal)) {
      renewals.set(renewal, { end: ttl === undefined ? undefined : safeEnd(sentAt, ttl), isOvertaken: false });
    }
  }

  /** The deadline of the renewal that was applied last counts. If that is not known, the earlier one does. */
  renewed(hold: bigint, renewal: bigint, deadlineMs: bigint | undefined): void {
    const lease = this.holds.get(hold);
    if (lease === undefined) return;
    const sent = lease.unansweredRenewals.get(renewal);
    if (!sent?.isOvertaken || lease.ownDeadline === undefined) lease.ownDeadline = deadlineMs;
    else if (deadlineMs !== undefined) lease.ownDeadline = smaller(lease.ownDeadline, deadlineMs);
    lease.unansweredRenewals.delete(renewal);
    for (const other of lease.unansweredRenewals.values()) other.isOvertaken = true;
    this.insert(hold, lease);
  }

  /** The renewal did not take effect, and will not. */
  renewalRefused(hold: bigint, renewal: bigint): void {
    this.holds.get(hold)?.unansweredRenewals.delete(renewal);
  }

  ended(hold: bigint): void {
    this.holds.delete(hold);
  }

  sessionValidUntil(): bigint {
    return safeEnd(this.lastAnsweredSentAt, this.span);
  }

  /** The hold certainly lives until then; undefined if there is no such hold. */
  validUntil(hold: bigint): bigint | undefined {
    const lease = this.holds.get(hold);
    return lease && earliest([this.sessionValidUntil(), this.ownEnd(lease)]);
  }

  hasOwnEnd(hold: bigint): boolean {
    const lease = this.holds.get(hold);
    return lease !== undefined && this.ownEnd(lease) !== undefined;
  }

  endsBeforeSession(hold: bigint): boolean {
    const lease = this.holds.get(hold);
    const ownEnd = lease && this.ownEnd(lease);
    return ownEnd !== undefined && ownEnd < this.sessionValidUntil();
  }

  /** From then on a third of its time is left. */
  atRiskFrom(hold: bigint): bigint | undefined {
    const lease = this.holds.get(hold);
    if (lease === undefined) return undefined;
    const ofSession = larger(0n, this.sessionValidUntil() - this.span / 3n);
    const ownEnd = this.ownEnd(lease);
    return ownEnd === undefined ? ofSession : smaller(ofSession, larger(0n, ownEnd - lease.ownSpan / 3n));
  }

  heartbeatDue(): bigint {
    return this.lastAnsweredSentAt + this.span / 3n;
  }

  private ownEnd(lease: HoldLease): bigint | undefined {
    const ends = [...lease.unansweredRenewals.values()].map((sent) => sent.end);
    if (lease.ownDeadline !== undefined) ends.push(this.sampleFor(lease)?.safeEndOf(lease.ownDeadline) ?? 0n);
    return earliest(ends);
  }

  private sampleFor(lease: HoldLease): Sample | undefined {
    return lease.isBestEffort ? this.bestEffort : this.best;
  }
}
