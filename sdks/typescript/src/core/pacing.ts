/** How long to pause between tries, and when to let calls fail at once. */

import { larger, MS, smaller } from "./lease.js";

const FIRST = 20n * MS;
const LONGEST = 500n * MS;
/** An election takes less. */
const OPEN_AFTER = 3_000n * MS;
const SHORTEST_HANDSHAKE = 1_000n * MS;

/** Doubles, with jitter, so that the clients of a failed leader do not all come back at once. */
export class Backoff {
  private ceiling = FIRST;

  /** `random` returns a number from 0 to below 1. */
  constructor(private readonly random: () => number) {}

  reset(): void {
    this.ceiling = FIRST;
  }

  nextDelay(): bigint {
    const half = this.ceiling / 2n;
    this.ceiling = smaller(this.ceiling * 2n, LONGEST);
    return half + BigInt(Math.floor(Number(half) * this.random()));
  }

  /** The longest pause after what a node has told to wait. */
  static longestAfter(told: bigint): bigint {
    return told + LONGEST;
  }
}

/**
 * How long a node may take over a TLS handshake. A node whose clients all come back at one moment makes their handshakes
 * one after another. Clients that gave up after a fixed time would make it work for nothing.
 */
export class HandshakePatience {
  duration = SHORTEST_HANDSHAKE;
  private readonly longest: bigint;

  /** Of a client whose sessions have this TTL: another node must have time to answer before the lease ends. */
  constructor(ttl: bigint) {
    this.longest = larger(ttl / 3n, SHORTEST_HANDSHAKE);
  }

  /** After a handshake, or an attempt that took too long. */
  note(tookTooLong: boolean): void {
    this.duration = tookTooLong ? smaller(this.duration * 2n, this.longest) : SHORTEST_HANDSHAKE;
  }
}

/** `closed`, or `open` and `half_open` while no node serves: then calls fail at once. */
export type Circuit = "closed" | "open" | "half_open";

/** Opens when no node has served the session for a while: then calls fail at once instead of waiting in vain. */
export class Breaker {
  state: Circuit = "closed";
  private failingSince: bigint | undefined;

  get isClosed(): boolean {
    return this.state === "closed";
  }

  handleTry(now: bigint): void {
    this.failingSince ??= now;
    if (this.state === "open") this.state = "half_open";
  }

  handleFailure(now: bigint): void {
    const hasFailedLong = this.failingSince !== undefined && now - this.failingSince >= OPEN_AFTER;
    if (!this.isClosed || hasFailedLong) this.state = "open";
  }

  handleSuccess(): void {
    this.failingSince = undefined;
    this.state = "closed";
  }
}
