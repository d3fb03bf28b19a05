/**
 * Leader election. An election is an exclusive lock: the leader holds it, the candidates wait for it, the value of a
 * leader is the metadata of its hold, and the fencing token is the epoch.
 */

import { create } from "@bufbuild/protobuf";
import type { Client } from "./client.js";
import { TimedOut } from "./errors.js";
import { follow, isGap, type Nodes } from "./following.js";
import { ObserveRequestSchema, ObserveResponseSchema } from "./gen/holdfast/v1/election_pb.js";
import type { EventPosition } from "./gen/holdfast/v1/watch_pb.js";
import { Guard, type ReleaseOutcome } from "./guards.js";
import { WAIT_MS_MAX, type WaitOptions } from "./lock-options.js";

/** Options of `lead`. */
export interface LeadOptions extends WaitOptions {
  /** What observers are told; at most 1,024 bytes. */
  value?: string | Uint8Array;
  /** How long to stand for election. By default until elected. */
  waitMs?: number | undefined;
}

/** The leadership: a held lock whose token is the epoch. */
export class Leadership extends Guard {
  /** Higher than that of every leader before. Throws `Lost` once the leadership may have ended. */
  get epoch(): bigint {
    return this.token;
  }

  /** Steps down. */
  resign(): Promise<ReleaseOutcome> {
    return this.release();
  }
}

/** Who leads. */
export interface Leader {
  value: Uint8Array;
  epoch: bigint;
  /** The public id of the session. */
  session: string;
}

/** What an observer is told. */
export type Observed =
  /** It leads, or has another value. */
  | ({ type: "leader" } & Leader)
  /** No client leads. */
  | { type: "vacant" }
  /** Leaders may have come and gone unseen. Who leads now is told next. */
  | { type: "missed"; why: string };

/** An election. Nothing is sent to the cluster before a candidacy or an observation. */
export class Election {
  /** @internal */
  constructor(
    private readonly client: Client,
    private readonly nodes: Nodes,
    private readonly elect: (options: LeadOptions) => Promise<Leadership>,
    readonly name: string,
  ) {}

  /** Stands for election, and resolves when elected. Candidates are elected in the order in which they came. */
  async lead(options: LeadOptions = {}): Promise<Leadership> {
    for (;;) {
      try {
        return await this.elect({ ...options, waitMs: options.waitMs ?? WAIT_MS_MAX });
      } catch (error) {
        if (!(error instanceof TimedOut) || options.waitMs !== undefined) throw error;
      }
    }
  }

  /** The present leader; undefined if there is none. */
  async leader(): Promise<Leader | undefined> {
    const [holder] = (await this.client.status(this.name)).holders;
    return holder && { value: holder.metadata, epoch: holder.token, session: holder.session };
  }

  /** The leader of the moment, then each leader, each value and each vacancy, once and in order. */
  async *observe({ signal }: { signal?: AbortSignal | undefined } = {}): AsyncGenerator<Observed, never> {
    let position: EventPosition | undefined;
    let epoch = 0n;
    const { name } = this;
    const call = {
      path: "/holdfast.v1.ElectionService/Observe",
      input: ObserveRequestSchema,
      output: ObserveResponseSchema,
      request: () => create(ObserveRequestSchema, { name, ...(position && { after: position, afterEpoch: epoch }) }),
    };
    for await (const { frame, end } of follow(this.nodes, call, signal)) {
      if (end !== undefined) {
        if (!isGap(end)) continue;
        position = undefined;
        yield { type: "missed", why: end.message };
        continue;
      }
      position = frame.position ?? position;
      if (frame.change.case === "leader") {
        const { value, publicSessionId: session } = frame.change.value;
        epoch = frame.change.value.epoch;
        yield { type: "leader", value, epoch, session };
      } else if (frame.change.case === "vacancy") {
        epoch = 0n;
        yield { type: "vacant" };
      }
    }
    throw new Error("a stream is followed for ever");
  }
}
