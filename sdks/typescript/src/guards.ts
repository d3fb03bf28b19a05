/** Held locks. Their questions are answered by the local clock and the lease; no node is asked. */

import { now } from "./clock.js";
import type { Hold } from "./core/hold.js";
import { Entry } from "./core/requests.js";
import type { Engine } from "./engine.js";
import { type LossReason, Lost } from "./errors.js";
import { Mode } from "./gen/holdfast/v1/holdfast_pb.js";
import { metadataOf, ms, type WaitOptions, waitMsOf } from "./lock-options.js";

/** What became of a release. */
export type ReleaseOutcome = "released" | "not_owner" | "already_released" | "expired" | "unspecified";

const MODES = {
  [Mode.UNSPECIFIED]: "exclusive",
  [Mode.EXCLUSIVE]: "exclusive",
  [Mode.SHARED]: "shared",
  [Mode.PERMIT]: "permit",
} as const;

/** Locks that were granted together. If one of them is lost, none gives a token any more. */
export abstract class HeldLocks {
  /** @internal */
  protected readonly engine: Engine;
  /** @internal */
  protected readonly holds: readonly Hold[];
  private controller: AbortController | undefined;
  private isReleased = false;

  /** @internal */
  constructor(engine: Engine, holds: readonly Hold[]) {
    this.engine = engine;
    this.holds = holds;
  }

  /** Throws `Lost` unless the lock is certainly held. It reads the clock each time. */
  check(): void {
    if (this.isReleased) throw new Lost("released");
    const time = now();
    for (const hold of this.holds) hold.check(time);
  }

  /** Whether the lock is certainly held. */
  get isHeld(): boolean {
    return this.loss === undefined;
  }

  /** Why the lock is lost; undefined while it is held. */
  get loss(): LossReason | undefined {
    try {
      this.check();
      return undefined;
    } catch (error) {
      return error instanceof Lost ? error.reason : "ended";
    }
  }

  /** For how many milliseconds the lock is certainly held, as far as is known now. */
  get validForMs(): number {
    if (!this.isHeld) return 0;
    const time = now();
    return Math.max(0, Math.min(...this.holds.map((hold) => Number(hold.validUntil() - time) / 1e6)));
  }

  /** Whether a third of the time is left, or less: heartbeats go unanswered, or the hold's own time runs out. */
  get isAtRisk(): boolean {
    const time = now();
    return !this.isHeld || this.holds.some((hold) => hold.atRiskFrom() <= time);
  }

  /** Aborts when the lock is lost; its reason is a `Lost`. A release does not abort it. */
  get signal(): AbortSignal {
    if (this.controller === undefined) {
      const controller = new AbortController();
      this.controller = controller;
      // Locks that were granted together have one loss.
      this.holds.forEach((hold, index) => {
        this.engine.watch(hold, (reason) => {
          if (index === 0) controller.abort(new Lost(reason));
        });
      });
    }
    const { loss } = this;
    if (loss !== undefined && loss !== "released") this.controller.abort(new Lost(loss));
    return this.controller.signal;
  }

  /** Waits until the lock is lost, and resolves with the reason. */
  untilLost(): Promise<LossReason> {
    const { signal } = this;
    return new Promise((resolve) => {
      const tell = () => resolve((signal.reason as Lost).reason);
      if (signal.aborted) tell();
      else signal.addEventListener("abort", tell, { once: true });
    });
  }

  /**
   * The end of an `await using` block: releases, and throws `Lost` if the lock was lost meanwhile. If the block threw,
   * too, JavaScript throws a `SuppressedError` that has both.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    const loss = this.isReleased ? undefined : this.loss;
    try {
      await this.releaseAll();
    } catch (error) {
      if (loss === undefined) throw error;
    }
    if (loss !== undefined) throw new Lost(loss);
  }

  /** Once; nothing if there is nothing left to release. */
  protected async releaseAll(): Promise<ReleaseOutcome[]> {
    if (this.isReleased) return this.holds.map(() => "already_released");
    this.isReleased = true;
    return Promise.all(this.holds.map((hold) => this.engine.run<ReleaseOutcome>(new Entry("release", {}, { hold }))));
  }
}

/** One held lock. */
export class Guard extends HeldLocks {
  private get hold(): Hold {
    return this.holds[0] as Hold;
  }

  get name(): string {
    return this.hold.name;
  }

  /** The fencing token. Reads the clock each time, and throws `Lost` once the lock may have ended. */
  get token(): bigint {
    this.check();
    return this.hold.heldAs.token;
  }

  /** The token in full form, which the protected resource checks; empty for a permit. */
  get fence(): string {
    this.check();
    return this.hold.heldAs.fence;
  }

  get mode(): "exclusive" | "shared" | "permit" {
    return MODES[this.hold.heldAs.mode];
  }

  /** Whether it is of the efficiency tier, where two holders can overlap for a moment. */
  get isBestEffort(): boolean {
    return this.hold.isBestEffort;
  }

  /** The age to ask for the next lock of the same transaction with. */
  get since(): bigint | undefined {
    return this.hold.since;
  }

  async release(): Promise<ReleaseOutcome> {
    return (await this.releaseAll())[0] ?? "already_released";
  }

  /** Starts the hold's own TTL again. A hold without one needs no renewal. */
  async renew(ttlMs?: number): Promise<void> {
    this.check();
    await this.engine.run(new Entry("renew", { ttlMs: ms(ttlMs) }, { hold: this.hold }));
  }

  /** From exclusive to shared, under the same token. */
  async convertToShared(): Promise<void> {
    await this.convert(Mode.SHARED, {});
  }

  /** From shared to exclusive, when the other readers are gone. The lock gets a new token. */
  async convertToExclusive(options: WaitOptions = {}): Promise<void> {
    await this.convert(Mode.EXCLUSIVE, options);
  }

  private async convert(mode: Mode, options: WaitOptions): Promise<void> {
    this.check();
    const waitMs = waitMsOf(options);
    const entry = new Entry("convert", { mode, waitMs: BigInt(waitMs), policy: 1 }, { hold: this.hold });
    await this.engine.run(entry, { waitMs, signal: options.signal });
  }

  /** Other metadata for the hold. */
  async proclaim(metadata: string | Uint8Array): Promise<void> {
    this.check();
    await this.engine.run(new Entry("proclaim", { metadata: metadataOf(metadata) }, { hold: this.hold }));
  }

  /** Hands the lock to a session that waits for it, and resolves with the token that the other has. */
  async transfer(toPublicSessionId: string): Promise<bigint> {
    this.check();
    return this.engine.run<bigint>(new Entry("transfer", { toPublicSessionId }, { hold: this.hold }));
  }
}

/** Several held locks. */
export class GuardAll extends HeldLocks {
  /** In the order in which they were asked for, as are `tokens` and `fences`. */
  get names(): string[] {
    return this.holds.map((hold) => hold.name);
  }

  get tokens(): bigint[] {
    this.check();
    return this.holds.map((hold) => hold.heldAs.token);
  }

  get fences(): string[] {
    this.check();
    return this.holds.map((hold) => hold.heldAs.fence);
  }

  async release(): Promise<ReleaseOutcome[]> {
    return this.releaseAll();
  }
}
