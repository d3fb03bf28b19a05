/**
 * The sessions of a client: one in the root group, and one in each other group of the cluster whose locks it uses.
 *
 * Each is an `Engine` with a connection, a lease, a leader and a circuit breaker of its own, so what happens to one group
 * does not reach the sessions in others. The root group's is opened first. Its welcome tells which group has which locks.
 * A cluster of one group tells nothing, and then there is no other session. A session in another group is opened by the
 * first request for a lock of that group. What concerns a hold goes to the engine that has it.
 */

import { randomBytes } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { now } from "./clock.js";
import { Endpoints } from "./core/endpoints.js";
import type { Hold } from "./core/hold.js";
import { MS } from "./core/lease.js";
import type { Circuit } from "./core/pacing.js";
import { Entry } from "./core/requests.js";
import { Redirects, ROOT, Routes } from "./core/routes.js";
import { Engine, type EngineOptions, type RunOptions } from "./engine.js";
import { Closed, TimedOut, Unavailable, WrongGroup } from "./errors.js";
import type { Nodes } from "./following.js";
import {
  type GroupMap,
  StatusRequestSchema,
  type StatusResponse,
  StatusResponseSchema,
} from "./gen/holdfast/v1/holdfast_pb.js";
import { callAny } from "./unary.js";

export interface SessionsOptions extends Pick<EngineOptions, "settings" | "requestTimeoutMs" | "security" | "log"> {
  endpoints: string;
  discovers: boolean;
}

/** Locks that were granted, and the session that has them. */
export interface Granted {
  engine: Engine;
  holds: Hold[];
}

export class Sessions {
  /** Serves the efficiency tier, too. */
  readonly root: Engine;
  /** For calls that need no session. */
  readonly nodes: Nodes;
  private readonly others = new Map<number, Engine>();
  private readonly routes = new Routes();
  private readonly ids = new SessionIds(() => randomBytes(16).toString("hex"));
  /** Requests that wait for a newer map. */
  private readonly pauses = new Set<() => void>();
  private isClosed = false;

  constructor(private readonly options: SessionsOptions) {
    const { endpoints, discovers, security, requestTimeoutMs } = options;
    const root = this.start(ROOT, new Endpoints(endpoints, discovers));
    this.root = root;
    this.nodes = {
      security,
      patienceMs: requestTimeoutMs,
      get addresses() {
        return root.addresses;
      },
    };
  }

  /** Asks the group that has the locks for them, and follows refusals to the group that has them by now. */
  async acquire(entry: Entry, { waitMs = 0, ...options }: RunOptions): Promise<Granted> {
    const waitsUntil = now() + BigInt(Math.ceil(waitMs + this.options.requestTimeoutMs)) * MS;
    if (!this.root.wasEverOpen && this.root.circuit === "closed") await this.learnFirst(waitsUntil, options.signal);
    const began = now();
    const redirects = new Redirects(Math.random);
    let request = entry;
    let left = waitMs;
    for (;;) {
      const group = this.routes.groupOf(entry);
      const engine = this.engineIn(group);
      try {
        return { engine, holds: await engine.run<Hold[]>(request, { ...options, waitMs: left, waitsUntil }) };
      } catch (error) {
        if (!(error instanceof WrongGroup)) throw error;
        const { epoch } = this.routes;
        const delay = redirects.next(error, group, this.routes.groupOf(entry), epoch);
        if (delay === undefined || now() >= waitsUntil) throw error;
        if (error.mapEpoch > epoch) engine.fetchMap();
        if (delay > 0n) await this.pause(delay, options.signal);
      }
      left = waitMs - Number((now() - began) / MS);
      if (waitMs > 0 && left <= 0) throw new TimedOut();
      left = Math.max(0, left);
      request = entry.again(left);
    }
  }

  /**
   * Opens the session in the root group if no node has answered a hello yet: the welcome tells which group has the locks.
   * A request that is sent before would spend its wait on the way to a group that does not have them.
   */
  private async learnFirst(waitsUntil: bigint, signal: AbortSignal | undefined): Promise<void> {
    try {
      await this.root.open({ waitsUntil, signal });
    } catch (error) {
      // Nothing but a session was asked for.
      if (error instanceof Unavailable) throw this.root.unavailable;
      throw error;
    }
  }

  /** A read opens no session outside of the root group. Without one there, any node answers. */
  async status(name: string): Promise<StatusResponse> {
    const entry = new Entry("status", { name });
    const group = this.routes.groupOf(entry);
    const engine = group === ROOT ? this.root : this.others.get(group);
    if (engine !== undefined && (engine.isOpen || group === ROOT)) {
      try {
        const status = await engine.run<StatusResponse>(entry);
        // On a stream, a group shows what it has itself. The welcome may have told by now that another has the lock.
        if (this.routes.groupOf(entry) === group) return status;
      } catch (error) {
        if (!(error instanceof WrongGroup)) throw error;
      }
    }
    if (this.isClosed) throw new Closed();
    return callAny(this.nodes, {
      path: "/holdfast.v1.LockService/Status",
      input: StatusRequestSchema,
      output: StatusResponseSchema,
      request: () => create(StatusRequestSchema, { name }),
    });
  }

  /** The worst one of all sessions. */
  get circuit(): Circuit {
    const states = this.engines.map((engine) => engine.circuit);
    return (["open", "half_open"] as const).find((state) => states.includes(state)) ?? "closed";
  }

  /** All at the same time. The first that could not be closed is the error. */
  async close(): Promise<void> {
    this.isClosed = true;
    this.endPauses();
    const outcomes = await Promise.allSettled(this.engines.map((engine) => engine.close()));
    const failed = outcomes.find((outcome) => outcome.status === "rejected");
    if (failed !== undefined) throw failed.reason;
  }

  private get engines(): Engine[] {
    return [this.root, ...this.others.values()];
  }

  private engineIn(group: number): Engine {
    if (group === ROOT) return this.root;
    if (this.isClosed) throw new Closed();
    const known = this.others.get(group);
    if (known !== undefined) return known;
    const engine = this.start(group, this.root.endpoints.ofOtherGroup(this.routes.leaderOf(group)));
    this.others.set(group, engine);
    return engine;
  }

  private start(group: number, endpoints: Endpoints): Engine {
    const onMap = (map: GroupMap) => {
      if (this.routes.learn(map)) this.endPauses();
    };
    return new Engine({ ...this.options, group, endpoints, newSessionId: this.ids.ofOneGroup(), onMap });
  }

  /** Until there is a newer map, or the client is closed, or the caller is gone, or the time is over. */
  private async pause(span: bigint, signal: AbortSignal | undefined): Promise<void> {
    if (this.isClosed || signal?.aborted) return;
    await new Promise<void>((resolve) => {
      const end = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", end);
        this.pauses.delete(end);
        resolve();
      };
      const timer = setTimeout(end, Number(span / MS) + 1);
      signal?.addEventListener("abort", end, { once: true });
      this.pauses.add(end);
    });
  }

  private endPauses(): void {
    for (const end of [...this.pauses]) end();
  }
}

/**
 * Draws the ids of sessions. Those of a client have one id in all groups, so that a person finds all of them by it. A
 * session that was lost is followed by one with another id, because no group ever sees an id again. So for a while ids
 * can differ: a group takes the newest one when its own session is lost.
 */
export class SessionIds {
  private newest = "";
  private count = 0;

  constructor(private readonly draw: () => string) {}

  /** For the sessions in one group, one after the other. */
  ofOneGroup(): () => string {
    let used = 0;
    return () => {
      if (used === this.count) {
        this.newest = this.draw();
        this.count += 1;
      }
      used = this.count;
      return this.newest;
    };
  }
}
