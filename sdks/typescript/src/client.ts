/** A client of a cluster: any number of locks, in one session for each group of the cluster. */

import { hostname } from "node:os";
import { basename } from "node:path";
import type { Circuit } from "./core/pacing.js";
import type { Entry } from "./core/requests.js";
import { Election, Leadership } from "./election.js";
import type { Log } from "./engine.js";
import { Guard, GuardAll, type HeldLocks } from "./guards.js";
import {
  acquireAllEntry,
  acquireEntry,
  checkName,
  type LockAllOptions,
  type LockOptions,
  waitMsOf,
} from "./lock-options.js";
import { Security, type SecurityOptions } from "./security.js";
import { type Granted, Sessions } from "./sessions.js";
import { type Status, statusOf } from "./status.js";
import { type Watched, type WatchOptions, watch } from "./watch.js";

const OWNER_BYTES_MAX = 256;
/** With a shorter one no heartbeat would be answered in time. */
const LINGER_MS_MIN = 100;

/** Options of a client. */
export interface ClientOptions extends SecurityOptions {
  /** The session's TTL: for so long its locks stay if the program is gone. By default 30,000. */
  ttlMs?: number;
  /** How long the session outlives its broken stream. By default the TTL. */
  lingerMs?: number;
  /** How long a request may take, beyond its own wait. By default 10,000. */
  requestTimeoutMs?: number;
  /** Shown to people who look at the session. By default the name of the script. */
  application?: string;
  /** Shown as well. */
  note?: string;
  /** False: only the endpoints that are given are used. */
  discover?: boolean;
  /** Gets what the library tells about its connections and its session. */
  log?: Log;
  /** Returns the `traceparent` of the present span, for requests that do not name one. */
  traceparent?: () => string | undefined;
}

/** What `using` passes to its routine. */
export type Routine<G, T> = (signal: AbortSignal, guard: G) => T | Promise<T>;

export class Client {
  private readonly sessions: Sessions;
  private readonly options: ClientOptions;

  /** Nothing is sent before the first request, or `connect`. Endpoints are `host:port`, several with commas. */
  constructor(endpoints: string | readonly string[] = "127.0.0.1:7420", options: ClientOptions = {}) {
    const { ttlMs = 30_000, lingerMs, requestTimeoutMs = 10_000, discover = true } = options;
    if (lingerMs !== undefined && lingerMs < LINGER_MS_MIN) {
      throw new TypeError("the linger time is below 100 ms; take a longer one, or none: then it is the TTL");
    }
    const program = basename(process.argv[1] ?? "node");
    this.options = options;
    this.sessions = new Sessions({
      endpoints: typeof endpoints === "string" ? endpoints : endpoints.join(","),
      discovers: discover,
      settings: {
        ttlMs: BigInt(Math.floor(ttlMs)),
        ...(lingerMs !== undefined && { lingerMs: BigInt(Math.floor(lingerMs)) }),
        owner: {
          application: cut(options.application ?? program),
          host: cut(hostname()),
          pid: process.pid,
          note: cut(options.note ?? ""),
        },
      },
      requestTimeoutMs,
      security: new Security(options, ttlMs),
      log: options.log,
    });
  }

  /** Opens the session now. Without it, the first request does. */
  async connect(): Promise<this> {
    await this.sessions.root.open();
    return this;
  }

  /** Takes a lock: `await using guard = await client.lock("order:42", { waitMs: 10_000 })`. */
  async lock(name: string, options: LockOptions = {}): Promise<Guard> {
    const { engine, holds } = await this.acquire(acquireEntry(name, this.traced(options)), options);
    return checked(new Guard(engine, holds));
  }

  /**
   * Takes several locks, all at one moment or none. Where the cluster has several groups, the names need one tag, such as
   * `{order-42}/header` and `{order-42}/lines`: otherwise it throws `SeveralGroups`.
   */
  async lockAll(names: Iterable<string>, options: LockAllOptions = {}): Promise<GuardAll> {
    const { engine, holds } = await this.acquire(acquireAllEntry(names, this.traced(options)), options);
    return checked(new GuardAll(engine, holds));
  }

  /**
   * Runs a routine under a lock, or under several, and releases them behind it. If a lock was lost meanwhile, it throws
   * `Lost`; the routine's own error comes first. The routine's signal aborts on a loss.
   *
   * The arguments are those of redlock's `using`: names, a TTL that is renewed, options, the routine.
   */
  using<T>(name: string, routine: Routine<Guard, T>): Promise<T>;
  using<T>(name: string, options: number | LockOptions, routine: Routine<Guard, T>): Promise<T>;
  using<T>(name: string, ttlMs: number, options: LockOptions, routine: Routine<Guard, T>): Promise<T>;
  using<T>(names: readonly string[], routine: Routine<GuardAll, T>): Promise<T>;
  using<T>(names: readonly string[], options: number | LockAllOptions, routine: Routine<GuardAll, T>): Promise<T>;
  using<T>(names: readonly string[], ttlMs: number, options: LockAllOptions, routine: Routine<GuardAll, T>): Promise<T>;
  async using<T>(names: string | readonly string[], ...rest: unknown[]): Promise<T> {
    const routine = rest.pop() as Routine<HeldLocks, T>;
    const given = rest.map((it) => (typeof it === "number" ? { ttlMs: it } : it)) as LockOptions[];
    const options: LockOptions = Object.assign({}, ...given);
    const guard = await (typeof names === "string" ? this.lock(names, options) : this.lockAll(names, options));
    let result: T;
    try {
      result = await routine(guard.signal, guard);
    } catch (error) {
      // The routine's own error is never hidden.
      await guard[Symbol.asyncDispose]().catch(() => undefined);
      throw error;
    }
    await guard[Symbol.asyncDispose]();
    return result;
  }

  /** Who holds a lock, and who waits for it: how many, and the first ten of each. */
  async status(name: string): Promise<Status> {
    checkName(name);
    return statusOf(await this.sessions.status(name));
  }

  /** An election: `await using leadership = await client.election("scheduler").lead({ value: "worker-7" })`. */
  election(name: string): Election {
    checkName(name);
    const elect = async ({ value = "", ...options }: { value?: string | Uint8Array }) => {
      const entry = acquireEntry(name, this.traced({ ...options, metadata: value }));
      const { engine, holds } = await this.acquire(entry, options);
      return checked(new Leadership(engine, holds));
    };
    return new Election(this, this.sessions.nodes, elect, name);
  }

  /**
   * The locks under a prefix, then each event once and in order. It goes on at another node when a connection breaks.
   *
   * `for await (const it of client.watch("billing/")) …`
   */
  watch(prefix: string, options: WatchOptions = {}): AsyncGenerator<Watched, never> {
    return watch(this.sessions.nodes, prefix, options);
  }

  /**
   * `closed`, or `open` and `half_open` while no node serves: then calls fail at once. Where the cluster has several
   * groups, it is the worst one of the groups in use, and only calls for that group fail.
   */
  get circuit(): Circuit {
    return this.sessions.circuit;
  }

  /** Ends the session, in each group that has one: all its locks and places in queues are freed at once. */
  async close(): Promise<void> {
    await this.sessions.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  private acquire(entry: Entry, options: LockAllOptions): Promise<Granted> {
    const { signal, onQueued } = options;
    return this.sessions.acquire(entry, { waitMs: waitMsOf(options), signal, onQueued });
  }

  private traced<O extends LockAllOptions>(options: O): O {
    const traceparent = options.traceparent ?? this.options.traceparent?.();
    return { ...options, traceparent };
  }
}

/** A grant may have been so long on its way that it is over by now. */
async function checked<G extends Guard | GuardAll>(guard: G): Promise<G> {
  try {
    guard.check();
    return guard;
  } catch (error) {
    await guard.release();
    throw error;
  }
}

/** As many whole characters as fit. */
function cut(text: string): string {
  const content = Buffer.from(text, "utf8");
  return content.length <= OWNER_BYTES_MAX
    ? text
    : content.toString("utf8", 0, OWNER_BYTES_MAX).replace(/\uFFFD+$/, "");
}
