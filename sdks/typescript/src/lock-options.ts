/** On which terms a lock is asked for. */

import { AsyncLocalStorage } from "node:async_hooks";
import { MS } from "./core/lease.js";
import { Entry, type Fields } from "./core/requests.js";
import { Rejected } from "./errors.js";
import { Mode, Policy, Tier } from "./gen/holdfast/v1/holdfast_pb.js";

const NAME_BYTES_MAX = 512;
const METADATA_BYTES_MAX = 1024;
/** The longest that a cluster lets a request wait: a day. */
export const WAIT_MS_MAX = 24 * 60 * 60 * 1000;
const CONTROL = /\p{Cc}/u;

const POLICIES = {
  detect: Policy.DETECT,
  wait: Policy.WAIT,
  wait_die: Policy.WAIT_DIE,
  wound_wait: Policy.WOUND_WAIT,
};
const TIERS = { correctness: Tier.CORRECTNESS, efficiency: Tier.EFFICIENCY };

/** Options of requests that can wait. */
export interface WaitOptions {
  /** How long to wait for the lock. By default 0: `Busy` if it is held. */
  waitMs?: number | undefined;
  /** Aborts the request: it fails with `Cancelled`, and leaves no waiter behind. */
  signal?: AbortSignal | undefined;
}

/** Options of `lockAll`. */
export interface LockAllOptions extends WaitOptions {
  /** The hold's own TTL. The library renews it. Without it the hold lives as long as the session. */
  ttlMs?: number | undefined;
  /** False: the hold ends after `ttlMs`, unless `guard.renew` is called. */
  autoRenew?: boolean;
  /** The hold ends after this time, whatever is renewed. */
  maxHoldMs?: number;
  /** If the hold ends without being released, the lock stays closed for so long. */
  lockDelayMs?: number;
  /** Shown to people who look at the lock; at most 1,024 bytes. */
  metadata?: string | Uint8Array;
  /** Which task of the program asks. By default that of `runAsActor`, else a new one for each request. */
  actor?: number | bigint;
  /** What to do when another holder is in the way. By default `detect`: `Deadlock` if to wait would close a cycle. */
  policy?: keyof typeof POLICIES;
  /** The age to ask with, as `Died` told it. */
  since?: bigint | undefined;
  /** An older actor that asks with `wound_wait` may take the hold away. */
  preemptible?: boolean;
  /** `efficiency` is faster, and two may hold the lock for a moment. */
  tier?: keyof typeof TIERS;
  /** Of which span this is part, as the W3C's `traceparent` writes it. */
  traceparent?: string | undefined;
  /** Called when the request waits, with its place: 1 is next in line. */
  onQueued?: (position: number) => void;
}

/** Options of `lock`. */
export interface LockOptions extends LockAllOptions {
  /** Together with other readers. */
  shared?: boolean;
  /** One of so many permits. All who use the name state the same number. */
  permits?: number;
  /** If this actor holds the lock already, count one more. It needs `actor` or `runAsActor`. */
  reentrant?: boolean;
}

const actors = new AsyncLocalStorage<bigint>();
let lastActor = 0n;

/**
 * Runs a function as one actor: locks that it takes, also in what it awaits, belong together. Then the cluster finds
 * deadlocks between actors, and an actor can enter a `reentrant` lock again.
 */
export function runAsActor<T>(work: () => T): T {
  lastActor += 1n;
  return actors.run(lastActor, work);
}

function actorOf({ actor, reentrant }: LockOptions): bigint {
  const known = actor === undefined ? actors.getStore() : BigInt(actor);
  if (known !== undefined) return known;
  if (reentrant) throw new TypeError("a reentrant lock needs an actor: give `actor`, or call `runAsActor`");
  lastActor += 1n;
  return lastActor;
}

function fieldsOf(options: LockOptions): Fields {
  return {
    waitMs: BigInt(waitMsOf(options)),
    ttlMs: ms(options.ttlMs),
    maxHoldMs: ms(options.maxHoldMs),
    lockDelayMs: ms(options.lockDelayMs),
    sinceMs: options.since,
    metadata: metadataOf(options.metadata ?? ""),
    actor: actorOf(options),
    policy: choice("policy", POLICIES, options.policy ?? "detect"),
    tier: choice("tier", TIERS, options.tier ?? "correctness"),
    preemptible: options.preemptible ?? false,
    traceparent: options.traceparent ?? "",
  };
}

function renewsOf({ ttlMs, autoRenew = true }: LockOptions): bigint | undefined {
  return ttlMs === undefined || !autoRenew ? undefined : BigInt(Math.floor(ttlMs)) * MS;
}

/** The request of one lock. */
export function acquireEntry(name: string, options: LockOptions): Entry {
  checkName(name);
  const { shared = false, permits, reentrant = false } = options;
  if (shared && permits !== undefined) throw new TypeError("a lock is shared, or one of several permits, and not both");
  const mode = permits !== undefined ? Mode.PERMIT : shared ? Mode.SHARED : Mode.EXCLUSIVE;
  const fields = { ...fieldsOf(options), name, mode, permits: permits ?? 0, reentrant };
  return new Entry("acquire", fields, { renews: renewsOf(options) });
}

/** The request of several locks at one moment. */
export function acquireAllEntry(names: Iterable<string>, options: LockAllOptions): Entry {
  const members = [...names].map((name) => {
    checkName(name);
    return { name, mode: Mode.EXCLUSIVE };
  });
  return new Entry("acquireAll", { ...fieldsOf(options), members }, { renews: renewsOf(options) });
}

export function waitMsOf({ waitMs = 0 }: WaitOptions): number {
  if (!(waitMs >= 0)) throw new TypeError("waitMs is 0 or more");
  return Math.min(Math.floor(waitMs), WAIT_MS_MAX);
}

/** Whole milliseconds of a span, if there is one. */
export function ms(span: number | undefined): bigint | undefined {
  if (span === undefined) return undefined;
  if (!(span >= 0 && span <= Number.MAX_SAFE_INTEGER)) throw new TypeError("a time is 0 ms or more");
  return BigInt(Math.floor(span));
}

export function metadataOf(metadata: string | Uint8Array): Uint8Array {
  const content = typeof metadata === "string" ? Buffer.from(metadata, "utf8") : metadata;
  if (content.length > METADATA_BYTES_MAX) {
    throw new Rejected("invalid_metadata", `metadata has at most ${METADATA_BYTES_MAX} bytes; send less`);
  }
  return content;
}

function choice<T>(what: string, choices: Record<string, T>, chosen: string): T {
  const value = Object.hasOwn(choices, chosen) ? choices[chosen] : undefined;
  if (value === undefined) throw new TypeError(`${what} is one of ${Object.keys(choices).join(", ")}`);
  return value;
}

export function checkName(name: string): void {
  const length = Buffer.byteLength(name, "utf8");
  // A lone surrogate has no form in UTF-8.
  const isClean = !CONTROL.test(name) && !/\p{Cs}/u.test(name);
  if (length < 1 || length > NAME_BYTES_MAX || !isClean) {
    throw new Rejected(
      "invalid_name",
      `a lock name has 1 to ${NAME_BYTES_MAX} bytes and no control characters; choose another`,
    );
  }
}
