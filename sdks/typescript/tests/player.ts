/** The state machine, with a clock and a node of the test's own. */

import assert from "node:assert/strict";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Endpoints } from "#dist/core/endpoints.js";
import type { Hold } from "#dist/core/hold.js";
import { MS } from "#dist/core/lease.js";
import { Entry, type Fields, type Kind } from "#dist/core/requests.js";
import { ROOT } from "#dist/core/routes.js";
import { Session } from "#dist/core/session.js";
import {
  type ClientFrame,
  FailureSchema,
  type GrantSchema,
  type GroupMap,
  Mode,
  type OpenSessionResponseSchema,
  type Operation,
  type Reason,
  ServerFrameSchema,
} from "#dist/gen/holdfast/v1/holdfast_pb.js";

export const SECOND = 1000n * MS;
export const TTL_MS = 30_000n;

export type Result = NonNullable<NonNullable<MessageInitShape<typeof ServerFrameSchema>["answers"]>[number]["result"]>;
type ServerFrameInit = MessageInitShape<typeof ServerFrameSchema>;

type Sent<K> = Extract<Operation["kind"], { case: K }>["value"];

/** A session, and what came out of it. */
export class Player {
  now = 100n * SECOND;
  logicalMs = 500_000n;
  readonly completed = new Map<string, unknown>();
  readonly connects: string[] = [];
  readonly farewells: boolean[] = [];
  readonly ended: string[] = [];
  readonly maps: GroupMap[] = [];
  readonly calls = new Map<string, bigint>();
  private readonly callers = new Map<object, string>();
  private sessions = 0;
  readonly session: Session;

  constructor(group = ROOT) {
    this.session = new Session({
      group,
      endpoints: new Endpoints("a:1,b:2"),
      settings: { ttlMs: TTL_MS, owner: { application: "", host: "", note: "", pid: 0 } },
      newSessionId: () => `session ${++this.sessions}`,
      random: () => 0.5,
      now: this.now,
    });
  }

  after(span: bigint): this {
    this.now += span;
    this.logicalMs += span / MS;
    return this;
  }

  ask(caller: string, kind: Kind, fields: Fields = {}, options: { hold?: Hold; renews?: bigint } = {}): this {
    const key = {};
    this.callers.set(key, caller);
    const entry = new Entry(kind, fields, { caller: key, waitsUntil: this.now + 60n * SECOND, ...options });
    this.calls.set(caller, this.session.handleRequest(this.now, entry));
    return this.settle();
  }

  acquire(caller: string, name: string, fields: Fields = {}): this {
    return this.ask(caller, "acquire", { name, mode: Mode.EXCLUSIVE, ...fields });
  }

  abandon(caller: string): this {
    this.session.handleAbandoned(this.now, this.calls.get(caller) ?? 0n);
    return this.settle();
  }

  close(caller: string): this {
    const key = {};
    this.callers.set(key, caller);
    this.session.handleClose(this.now, key);
    return this.settle();
  }

  settle(): this {
    for (let output = this.session.outputs.shift(); output; output = this.session.outputs.shift()) {
      if (output.do === "complete") this.completed.set(this.callers.get(output.caller) ?? "", output.outcome);
      else if (output.do === "connect") this.connects.push(output.address);
      else if (output.do === "disconnect") this.farewells.push(output.withFarewell);
      else if (output.do === "ended") this.ended.push(output.reason);
      else if (output.do === "map") this.maps.push(output.map);
    }
    return this;
  }

  frame(): ClientFrame | undefined {
    return this.session.nextFrame(this.now);
  }

  operations(): Operation[] {
    return this.frame()?.operations ?? [];
  }

  /** The one operation of the next frame, which has to be of this kind. */
  sent<K extends Kind | "resume">(kind: K): Sent<K> {
    const operations = this.operations();
    assert.deepEqual(
      operations.map((it) => it.kind.case),
      [kind],
    );
    return operations[0]?.kind.value as unknown as Sent<K>;
  }

  /** The node takes the connection and answers the hello. */
  welcome(more: MessageInitShape<typeof OpenSessionResponseSchema> = {}): this {
    assert.ok(this.session.handleConnected(this.now));
    this.settle();
    const [hello] = this.operations();
    assert.ok(hello?.kind.case === "open" || hello?.kind.case === "resume");
    const told = { ttlMs: TTL_MS, lingerMs: TTL_MS, logicalTimeMs: this.logicalMs, term: 1n, ...more };
    return this.answer(hello.kind.value.requestId, { case: hello.kind.case, value: told });
  }

  hear(frame: ServerFrameInit): this {
    this.session.handleFrame(this.now, create(ServerFrameSchema, frame));
    return this.settle();
  }

  answer(requestId: bigint, result: Result): this {
    return this.hear({ answers: [{ requestId, result }] });
  }

  fail(requestId: bigint, reason: Reason, told: MessageInitShape<typeof FailureSchema> = {}): this {
    return this.answer(requestId, { case: "failure", value: { reason, ...told } });
  }

  grant(requestId: bigint, name: string, token: bigint, fields: MessageInitShape<typeof GrantSchema> = {}): this {
    const value = { name, token, guarantee: 1, mode: Mode.EXCLUSIVE, acquireRequestId: requestId, ...fields };
    const outcome = { case: "granted" as const, value };
    return this.answer(requestId, { case: "acquire", value: { logicalTimeMs: this.logicalMs, outcome } });
  }

  breaks(): this {
    this.session.handleDisconnected(this.now, create(FailureSchema, { message: "reset", retryable: true }), false);
    return this.settle();
  }

  timePasses(): this {
    const due = this.session.nextTimeout();
    assert.ok(due !== undefined);
    if (due > this.now) this.after(due - this.now);
    this.session.handleTimeout(this.now);
    return this.settle();
  }

  untilConnecting(): this {
    const count = this.connects.length;
    while (this.connects.length === count) this.timePasses();
    return this;
  }

  reconnects(): this {
    return this.untilConnecting().welcome();
  }

  hold(caller = "g"): Hold {
    const [hold] = this.completed.get(caller) as Hold[];
    assert.ok(hold);
    return hold;
  }
}

export function holding(fields: MessageInitShape<typeof GrantSchema> = {}): Player {
  const player = new Player().acquire("g", "a").welcome();
  return player.grant(player.sent("acquire").requestId, "a", 7n, fields);
}
