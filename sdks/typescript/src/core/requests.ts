/** The requests of a session: what a program can ask, and how each looks on the wire. */

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type Mode, type Operation, OperationSchema, type Policy, Tier } from "../gen/holdfast/v1/holdfast_pb.js";
import type { Hold } from "./hold.js";
import { MS } from "./lease.js";

/** The name of an operation on the wire; `open` only stands for a caller who waits for the session. */
export type Kind = Exclude<NonNullable<Operation["kind"]["case"]>, "resume">;

/** What the operations carry, all of them together. */
export interface Fields {
  name?: string;
  mode?: Mode;
  members?: { name: string; mode: Mode }[];
  waitMs?: bigint;
  ttlMs?: bigint | undefined;
  maxHoldMs?: bigint | undefined;
  lockDelayMs?: bigint | undefined;
  sinceMs?: bigint | undefined;
  actor?: bigint;
  metadata?: Uint8Array;
  permits?: number;
  policy?: Policy;
  preemptible?: boolean;
  reentrant?: boolean;
  tier?: Tier;
  traceparent?: string;
  token?: bigint;
  acquireRequestId?: bigint;
  target?: bigint;
  toPublicSessionId?: string;
}

interface EntryOptions {
  hold?: Hold;
  caller?: object;
  waitsUntil?: bigint;
  renews?: bigint | undefined;
}

/** A request that has no answer yet. */
export class Entry {
  readonly hold: Hold | undefined;
  /** Undefined once no caller waits for the answer. */
  caller: object | undefined;
  waitsUntil: bigint;
  /** The TTL that the library keeps renewing. */
  readonly renews: bigint | undefined;
  /** Under which the program knows it; 0 if the program does not. */
  call = 0n;
  isAbandoned = false;
  isParked = false;
  /** The first sending: a retry may get the answer that was made for it. */
  firstSentAt: bigint | undefined;
  /** An earlier stream carried it, too. */
  wasSentBefore = false;
  answerDue: bigint | undefined;

  constructor(
    readonly kind: Kind,
    readonly fields: Fields = {},
    { hold, caller, waitsUntil, renews }: EntryOptions = {},
  ) {
    this.hold = hold;
    this.caller = caller;
    this.waitsUntil = waitsUntil ?? 0n;
    this.renews = renews;
  }

  get isAcquire(): boolean {
    return this.kind === "acquire" || this.kind === "acquireAll";
  }

  /** Whether it can stand in a queue. */
  get canWait(): boolean {
    return this.isAcquire || this.kind === "convert";
  }

  /** Whether the efficiency tier answers it. */
  get isBestEffort(): boolean {
    return this.hold === undefined ? this.fields.tier === Tier.EFFICIENCY : this.hold.isBestEffort;
  }

  get nameCount(): number {
    return Math.max(1, this.fields.members?.length ?? 0);
  }

  /** How long the answer may take because the request is to wait. */
  get ownWait(): bigint {
    return this.canWait ? (this.fields.waitMs ?? 0n) * MS : 0n;
  }

  /** The same request for new locks, for a try in another group. */
  again(waitMs: number): Entry {
    return new Entry(this.kind, { ...this.fields, waitMs: BigInt(waitMs) }, { renews: this.renews });
  }

  operation(requestId: bigint): Operation {
    const value = { requestId, ...this.hold?.request(), ...this.fields };
    // The compiler does not see that the kind and the fields belong together; `create` takes the fields of the kind.
    return create(OperationSchema, { kind: { case: this.kind, value } } as MessageInitShape<typeof OperationSchema>);
  }

  /** Whether a node that sent it back is to get it again. */
  get isWorthRetrying(): boolean {
    if (this.canWait) return !this.isAbandoned;
    const isOnlyForCaller = this.kind === "renew" || this.kind === "proclaim" || this.kind === "status";
    return !isOnlyForCaller || this.caller !== undefined;
  }
}
