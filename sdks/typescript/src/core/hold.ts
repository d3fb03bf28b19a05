/** A lock that is held, as the session and its guard both know it. */

import { type LossReason, Lost } from "../errors.js";
import { type Grant, Guarantee, type Mode, Tier } from "../gen/holdfast/v1/holdfast_pb.js";
import type { Leases } from "./lease.js";

/** The first reason for which a hold, or one of several that are held together, was lost. */
export class Loss {
  reason: LossReason | undefined;
  private callbacks: ((reason: LossReason) => void)[] = [];

  /** Only the first reason counts. */
  report(reason: LossReason): void {
    if (this.reason !== undefined) return;
    this.reason = reason;
    const { callbacks } = this;
    this.callbacks = [];
    for (const callback of callbacks) callback(reason);
  }

  /** The callback must be quick and must not throw: it is called within the session, or by a guard. */
  whenReported(callback: (reason: LossReason) => void): void {
    if (this.reason === undefined) this.callbacks.push(callback);
    else callback(this.reason);
  }
}

/** The state of the hold in the cluster. Guards that entered one hold several times share it. */
export class HeldAs {
  isLeaving = false;
  mode: Mode;
  token: bigint;
  fence: string;

  constructor({ mode, token, fence }: Grant) {
    this.mode = mode;
    this.token = token;
    this.fence = fence;
  }

  convert({ mode, token, fence }: Grant): void {
    this.mode = mode;
    this.token = token;
    this.fence = fence;
  }
}

interface HoldParts {
  acquire: bigint;
  entry: bigint;
  lease: bigint;
  call: bigint;
  grant: Grant;
  heldAs: HeldAs;
  leases: Leases;
  loss: Loss;
  since: bigint | undefined;
}

export class Hold {
  /** The request by which the cluster knows the hold, and a number of the guard's own. */
  readonly acquire: bigint;
  readonly entry: bigint;
  /** Guards that entered one hold several times have one lease. */
  readonly lease: bigint;
  readonly call: bigint;
  readonly name: string;
  readonly since: bigint | undefined;
  readonly isBestEffort: boolean;
  readonly heldAs: HeldAs;
  readonly loss: Loss;
  /** The cluster itself ended the hold, so there is nothing to release. */
  hasEnded = false;
  /** If the library renews the hold: its TTL, when the next renewal is due, and whether one is under way. */
  renews: bigint | undefined;
  renewalDue = 0n;
  isRenewing = false;
  /** Another acquire has entered it. */
  wasEntered = false;
  private readonly leases: Leases;

  constructor(parts: HoldParts) {
    this.acquire = parts.acquire;
    this.entry = parts.entry;
    this.lease = parts.lease;
    this.call = parts.call;
    this.name = parts.grant.name;
    this.since = parts.since;
    this.isBestEffort = isBestEffort(parts.grant);
    this.heldAs = parts.heldAs;
    this.loss = parts.loss;
    this.leases = parts.leases;
  }

  get key(): string {
    return holdKey(this.acquire, this.entry);
  }

  /** The cluster has reported the end of the hold. */
  end(reason: LossReason): void {
    this.hasEnded = true;
    // The cluster has one reason for both.
    const isSession = reason === "hold_ttl" && !this.leases.hasOwnEnd(this.lease);
    this.loss.report(isSession ? "session_expired" : reason);
  }

  /** Throws `Lost` unless the lock is certainly held. */
  check(now: bigint): void {
    const until = this.leases.validUntil(this.lease);
    if (until === undefined || now >= until) {
      this.loss.report(this.leases.endsBeforeSession(this.lease) ? "own_time_over" : "expired");
    }
    if (this.loss.reason !== undefined) throw new Lost(this.loss.reason);
    if (this.heldAs.isLeaving) throw new Lost("transferred");
  }

  validUntil(): bigint {
    return this.leases.validUntil(this.lease) ?? 0n;
  }

  atRiskFrom(): bigint {
    return this.leases.atRiskFrom(this.lease) ?? 0n;
  }

  /** What names the hold in a request. */
  request(): { name: string; token: bigint; acquireRequestId: bigint; tier: Tier } {
    const tier = this.isBestEffort ? Tier.EFFICIENCY : Tier.CORRECTNESS;
    return { name: this.name, token: this.heldAs.token, acquireRequestId: this.acquire, tier };
  }
}

export function holdKey(acquire: bigint, entry: bigint): string {
  return `${acquire}/${entry}`;
}

export function isBestEffort(grant: Grant): boolean {
  return grant.guarantee !== Guarantee.LINEARIZABLE;
}
