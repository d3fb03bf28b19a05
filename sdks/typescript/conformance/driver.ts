/**
 * The driver of the TypeScript library for the conformance suite: JSON lines on standard input and output.
 *
 * With `--misbehave MODE` it breaks a rule of the protocol, and the suite must find that.
 */

import { createInterface } from "node:readline";
import {
  Busy,
  Cancelled,
  Client,
  Closed,
  Deadlock,
  Died,
  type Guard,
  GuardAll,
  InvalidEndpoints,
  type LockOptions,
  Lost,
  type Observed,
  PermissionDenied,
  Rejected,
  TimedOut,
  Unauthenticated,
  Unavailable,
  type Watched,
} from "#dist/index.js";
import { forgets, MODES } from "./misbehaviour.js";
import { answer } from "./vectors.js";

// biome-ignore lint/suspicious/noExplicitAny: the suite sends what it likes.
type Request = any;
type Answer = Record<string, unknown>;

const clients = new Map<string, Client>();
const guards = new Map<string, Guard | GuardAll>();
const watches = new Map<string, Following>();
/** Requests that can be cancelled, by their ids. */
const cancellations = new Map<number, AbortController>();

/** The client cannot be made with these options. */
class Invalid extends Error {}

/** A watch or an observation. */
class Following {
  private items: AsyncGenerator<Watched | Observed>;
  private readonly end = new AbortController();

  constructor(private readonly begin: (signal: AbortSignal, isAgain: boolean) => AsyncGenerator<Watched | Observed>) {
    this.items = begin(this.end.signal, false);
  }

  async next(): Promise<Answer> {
    const { value } = await this.items.next();
    if (forgets.position) this.items = this.begin(this.end.signal, true);
    return { items: [itemOf(value)] };
  }

  close(): void {
    this.end.abort();
  }
}

function itemOf(item: Watched | Observed): Answer {
  switch (item.type) {
    case "lock":
      return { lock: { name: item.name, holders: item.holderCount, waiters: item.waiterCount } };
    case "event": {
      const { kind, names, token } = item.event;
      return { event: { kind, names, token: token.toString() } };
    }
    case "leader":
      return { leader: { value: Buffer.from(item.value).toString("utf8"), epoch: item.epoch.toString() } };
    default:
      return { [item.type]: true };
  }
}

/** In the words that all drivers share. */
function errorOf(error: unknown): Answer {
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof Lost) return { kind: "lost", reason: error.reason, message };
  if (error instanceof Unauthenticated) return { kind: "unauthenticated", message };
  if (error instanceof PermissionDenied) return { kind: "permission_denied", message };
  if (error instanceof Rejected) {
    return { kind: "rejected", reason: error.reason, retryable: error.retryable, message };
  }
  if (error instanceof Unavailable) return { kind: "unavailable", may_have_happened: error.mayHaveHappened, message };
  if (error instanceof Died) return { kind: "died", since: error.since.toString(), message };
  if (error instanceof Deadlock) {
    const cycle = error.cycle.map((link) => ({
      session: link.session,
      actor: Number(link.actor),
      waits_for: link.waitsFor,
    }));
    return { kind: "deadlock", cycle, message };
  }
  if (error instanceof Invalid || error instanceof InvalidEndpoints) return { kind: "invalid", message };
  const kinds = { busy: Busy, timed_out: TimedOut, cancelled: Cancelled, closed: Closed };
  const kind = Object.entries(kinds).find(([, type]) => error instanceof type)?.[0];
  return { kind: kind ?? "other", message };
}

function tokensOf(guard: Guard | GuardAll): Answer {
  if (guard instanceof GuardAll) return { tokens: guard.tokens.map(String) };
  return { token: guard.token.toString(), fence: guard.fence };
}

function keep(request: Request, guard: Guard | GuardAll): Answer {
  const told = tokensOf(guard);
  guards.set(request.as, guard);
  return told;
}

function clientOf(request: Request): Client {
  const client = clients.get(request.client);
  if (client === undefined) throw new Error(`no client ${request.client}`);
  return client;
}

function heldBy(request: Request): Guard | GuardAll {
  const guard = guards.get(request.guard);
  if (guard === undefined) throw new Error(`no guard ${request.guard}`);
  return guard;
}

function guardOf(request: Request): Guard {
  const guard = heldBy(request);
  if (guard instanceof GuardAll) throw new Error(`${request.guard} stands for several locks`);
  return guard;
}

function optionsOf(request: Request, signal: AbortSignal): LockOptions {
  return {
    signal,
    waitMs: request.wait_ms,
    ttlMs: request.ttl_ms,
    ...(request.max_hold_ms != null && { maxHoldMs: request.max_hold_ms }),
    ...(request.auto_renew != null && { autoRenew: request.auto_renew }),
    ...(request.actor != null && { actor: request.actor }),
    ...(request.policy != null && { policy: request.policy }),
    ...(request.tier != null && { tier: request.tier }),
    ...(request.since != null && { since: BigInt(request.since) }),
    ...(request.mode === "shared" && { shared: true }),
    ...(request.mode === "permit" && { permits: request.permits }),
    reentrant: request.reentrant ?? false,
  };
}

const AT_ONCE: Record<string, (request: Request) => Answer> = {
  hello: () => ({ name: "typescript", lacks: ["fork"] }),
  vectors: ({ kind, cases }) => ({ answers: cases.map((input: unknown) => answer(kind, input)) }),
  token: (request) => tokensOf(heldBy(request)),
  block: (request) => {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, request.ms);
    return tokensOf(heldBy(request));
  },
  cancel: (request) => {
    cancellations.get(request.call)?.abort(new Error("the suite cancels"));
    return {};
  },
};

const LATER: Record<string, (request: Request, signal: AbortSignal) => Promise<Answer>> = {
  async connect(request) {
    const { endpoints, ttl_ms: ttlMs, request_timeout_ms: requestTimeoutMs, auth_file: authFile } = request;
    const { ca, cert, key } = request;
    const given = Object.entries({ ttlMs, requestTimeoutMs, ca, cert, key, authFile }).filter(([, it]) => it != null);
    let client: Client;
    try {
      client = new Client(endpoints, Object.fromEntries(given));
    } catch (error) {
      throw error instanceof InvalidEndpoints ? error : new Invalid(String(error));
    }
    clients.set(request.as, request.when_needed ? client : await client.connect());
    return {};
  },
  async close(request) {
    await clientOf(request).close();
    return {};
  },
  async acquire(request, signal) {
    return keep(request, await clientOf(request).lock(request.name, optionsOf(request, signal)));
  },
  async acquire_all(request, signal) {
    const options = { waitMs: request.wait_ms, signal };
    return keep(request, await clientOf(request).lockAll(request.names, options));
  },
  async campaign(request, signal) {
    const election = clientOf(request).election(request.name);
    const leadership = await election.lead({ value: request.value, waitMs: request.wait_ms, signal });
    keep(request, leadership);
    return { epoch: leadership.epoch.toString() };
  },
  async watch(request) {
    const [client, withSnapshot] = [clientOf(request), request.snapshot ?? true];
    const begin = (signal: AbortSignal, isAgain: boolean) =>
      client.watch(request.prefix, { snapshot: withSnapshot && !isAgain, signal });
    watches.set(request.as, new Following(begin));
    return {};
  },
  async observe(request) {
    const election = clientOf(request).election(request.name);
    watches.set(request.as, new Following((signal) => election.observe({ signal })));
    return {};
  },
  async next(request) {
    const watch = watches.get(request.watch);
    if (watch === undefined) throw new Error(`no watch ${request.watch}`);
    return watch.next();
  },
  async end_watch(request) {
    watches.get(request.watch)?.close();
    return {};
  },
  async release(request) {
    const outcome = await heldBy(request).release();
    return { outcome: typeof outcome === "string" ? outcome : outcome[0] };
  },
  async renew(request) {
    await guardOf(request).renew(request.ttl_ms);
    return {};
  },
  async convert(request, signal) {
    const guard = guardOf(request);
    if (request.mode === "shared") await guard.convertToShared();
    else await guard.convertToExclusive({ waitMs: request.wait_ms, signal });
    return {};
  },
  async transfer(request) {
    return { token: (await guardOf(request).transfer(request.to)).toString() };
  },
  async await_loss(request) {
    return { reason: await heldBy(request).untilLost() };
  },
};

function reply(request: Request, outcome: Answer): void {
  process.stdout.write(`${JSON.stringify({ id: request.id, ...outcome })}\n`);
}

async function handle(request: Request): Promise<void> {
  const cancellation = new AbortController();
  cancellations.set(request.id, cancellation);
  try {
    const later = LATER[request.op];
    if (later === undefined) {
      reply(request, { err: { kind: "unsupported", message: `no request '${request.op}'` } });
      return;
    }
    reply(request, { ok: await later(request, cancellation.signal) });
  } catch (error) {
    reply(request, { err: errorOf(error) });
  } finally {
    cancellations.delete(request.id);
  }
}

const [option, mode = ""] = process.argv.slice(2);
if (option === "--misbehave") {
  const misbehave = MODES[mode];
  if (misbehave === undefined) throw new Error(`no misbehaviour '${mode}'`);
  misbehave();
}

const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const request = JSON.parse(line);
  const atOnce = AT_ONCE[request.op];
  if (atOnce === undefined) {
    void handle(request);
    return;
  }
  try {
    reply(request, { ok: atOnce(request) });
  } catch (error) {
    reply(request, { err: errorOf(error) });
  }
});
lines.on("close", () => process.exit(0));
