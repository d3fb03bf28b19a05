/**
 * What drives a session: it owns the connection and the timer, reads the clock, and decides nothing.
 *
 * A blocked event loop sends no heartbeats, so its locks are lost. Guards read the clock themselves and notice that
 * first. What arrived during a block is read before a node is taken for silent.
 */

import { create } from "@bufbuild/protobuf";
import { now } from "./clock.js";
import { Connection, type Dialled, dial, NotConnected } from "./connection.js";
import type { Endpoints } from "./core/endpoints.js";
import type { Hold } from "./core/hold.js";
import { earliest, larger, MS, smaller } from "./core/lease.js";
import type { Circuit } from "./core/pacing.js";
import type { Entry } from "./core/requests.js";
import { ROOT } from "./core/routes.js";
import { Session } from "./core/session.js";
import type { Settings } from "./core/state.js";
import { Cancelled, Closed, HoldfastError, type LossReason, Lost, Unavailable } from "./errors.js";
import { type Failure, FailureSchema, type GroupMap } from "./gen/holdfast/v1/holdfast_pb.js";
import type { Security } from "./security.js";

/** A node of which nothing came for so long, though it owes an answer, is asked whether it is there, and then left. */
const PING_AFTER = 2_000n * MS;
/** Timers take no more. */
const TIMER_MAX = 3_600_000n * MS;

/** What the library tells about itself. */
export interface LogRecord {
  level: "debug" | "info" | "warn" | "error";
  /** For people. */
  message: string;
  /** For programs: what happened. */
  event: "circuit" | "connect_failed" | "connected" | "disconnected" | "session_lost" | "session_opened";
  /** The address of the node, if one is concerned. */
  address?: string;
  /** In which group of the cluster the session is, if that is not the root group. */
  group?: number;
  error?: string;
}

export type Log = (record: LogRecord) => void;

/** A request of a program, until it has its outcome. */
class Call {
  number = 0n;
  outcome: unknown;

  constructor(
    private readonly done: () => void,
    readonly onQueued?: (position: number) => void,
  ) {}

  resolve(outcome: unknown): void {
    this.outcome = outcome;
    this.done();
  }
}

export interface RunOptions {
  waitMs?: number;
  /** By default as long as `waitMs` and the time of a request. */
  waitsUntil?: bigint;
  signal?: AbortSignal | undefined;
  onQueued?: ((position: number) => void) | undefined;
}

export interface EngineOptions {
  /** In which group of the cluster the session is. */
  group: number;
  endpoints: Endpoints;
  newSessionId: () => string;
  /** A node has told which group has which locks. */
  onMap: (map: GroupMap) => void;
  settings: Settings;
  requestTimeoutMs: number;
  security: Security;
  log: Log | undefined;
}

export class Engine {
  private readonly session: Session;
  private connection: Connection | undefined;
  /** Where the connection leads to, or the last dial. */
  private address = "";
  private dialNumber = 0;
  private timer: NodeJS.Timeout | undefined;
  private timerDue: bigint | undefined;
  private heardAt = 0n;
  private pingedAt = 0n;
  private heardCount = 0;
  private isQuietChecked = true;
  private isClosed = false;
  private wasOpen = false;
  private circuitTold: Circuit = "closed";

  constructor(private readonly options: EngineOptions) {
    this.session = new Session({
      group: options.group,
      endpoints: options.endpoints,
      settings: options.settings,
      newSessionId: options.newSessionId,
      random: Math.random,
      now: now(),
    });
  }

  // What callers do.

  /** Sends a request, and waits for its outcome. A caller that is aborted leaves nothing behind. */
  async run<T>(entry: Entry, { waitMs = 0, waitsUntil, signal, onQueued }: RunOptions = {}): Promise<T> {
    const { session } = this;
    if (signal?.aborted) throw new Cancelled(signal.reason);
    if (this.isClosed) throw new Closed();
    if (entry.kind !== "release" && !session.breaker.isClosed) throw session.state.unavailable(false);
    let abort: (() => void) | undefined;
    const call = await new Promise<Call>((done) => {
      const call: Call = new Call(() => done(call), onQueued);
      const time = now();
      this.noteIdle(time);
      entry.caller = call;
      entry.waitsUntil = waitsUntil ?? time + BigInt(Math.ceil(waitMs + this.options.requestTimeoutMs)) * MS;
      call.number = session.handleRequest(time, entry);
      if (signal !== undefined) {
        abort = () => {
          entry.caller = undefined;
          call.resolve(new Cancelled(signal.reason));
        };
        signal.addEventListener("abort", abort, { once: true });
      }
      this.pump(time);
    });
    if (abort !== undefined) signal?.removeEventListener("abort", abort);
    const { outcome } = call;
    if (entry.canWait && (outcome instanceof Cancelled || outcome instanceof Unavailable)) this.abandon(call);
    if (outcome instanceof HoldfastError) throw outcome;
    return outcome as T;
  }

  /** Opens the session now, and not with the first request. */
  async open({ waitsUntil, signal }: Pick<RunOptions, "waitsUntil" | "signal"> = {}): Promise<void> {
    if (signal?.aborted) throw new Cancelled(signal.reason);
    if (this.isClosed) throw new Closed();
    const time = now();
    const until = waitsUntil ?? time + BigInt(this.options.requestTimeoutMs) * MS;
    let abort: (() => void) | undefined;
    try {
      await this.await((call) => {
        abort = () => {
          this.session.handleOpenAbandoned(call);
          call.resolve(new Cancelled(signal?.reason));
        };
        signal?.addEventListener("abort", abort, { once: true });
        this.session.handleOpen(time, call, until);
      }, time);
    } finally {
      if (abort !== undefined) signal?.removeEventListener("abort", abort);
    }
  }

  async close(): Promise<void> {
    this.isClosed = true;
    const time = now();
    await this.await((call) => this.session.handleClose(time, call), time);
  }

  /** Calls back, not at once, when the hold is lost, also if no message tells it. */
  watch(hold: Hold, callback: (reason: LossReason) => void): void {
    hold.loss.whenReported((reason) => queueMicrotask(() => callback(reason)));
    this.session.state.watch(hold);
    this.setTimer();
  }

  get circuit(): Circuit {
    return this.session.breaker.state;
  }

  /** Whether a node has ever answered a hello. Then it has told which group has which locks, if there are several. */
  get wasEverOpen(): boolean {
    return this.session.wasEverWelcome;
  }

  /** For a request that was not sent. */
  get unavailable(): Unavailable {
    return this.session.state.unavailable(false);
  }

  get isOpen(): boolean {
    return this.session.state.isOpen;
  }

  get endpoints(): Endpoints {
    return this.session.endpoints;
  }

  /** The nodes that are known, for calls that need no session. */
  get addresses(): readonly string[] {
    return this.endpoints.addresses;
  }

  /** Has a node tell a newer map of the groups. */
  fetchMap(): void {
    const time = now();
    this.session.handleMapWanted(time);
    this.pump(time);
  }

  private async await(start: (call: Call) => void, time: bigint): Promise<void> {
    const call = await new Promise<Call>((done) => {
      const call: Call = new Call(() => done(call));
      start(call);
      this.pump(time);
    });
    if (call.outcome instanceof HoldfastError) throw call.outcome;
  }

  private abandon(call: Call): void {
    const time = now();
    this.session.handleAbandoned(time, call.number);
    this.pump(time);
  }

  // What the event loop does.

  /** Does what the session wants, and sends what it has to send. */
  private pump(time: bigint): void {
    const { session } = this;
    for (let output = session.outputs.shift(); output !== undefined; output = session.outputs.shift()) {
      switch (output.do) {
        case "complete":
          (output.caller as Call).resolve(output.outcome);
          break;
        case "queued": {
          const { onQueued } = output.caller as Call;
          const position = Number(output.position);
          if (onQueued !== undefined) queueMicrotask(() => onQueued(position));
          break;
        }
        case "map":
          this.options.onMap(output.map);
          break;
        case "connect":
          this.dialNumber += 1;
          void this.dial(this.dialNumber, output.address);
          break;
        case "disconnect":
          this.dialNumber += 1;
          this.connection?.leave(output.withFarewell);
          this.connection = undefined;
          break;
        case "ended":
          this.log({
            level: "error",
            event: "session_lost",
            message: "the session is lost, with all its locks",
            address: this.address,
            error: output.words || new Lost(output.reason).message,
          });
          break;
      }
    }
    this.send(time);
    this.tellChanges();
    this.setTimer();
  }

  private send(time: bigint): void {
    const { session, connection } = this;
    while (connection?.hasRoom) {
      const frame = session.nextFrame(time);
      if (frame === undefined) break;
      connection.send(frame);
    }
    if (connection?.hasRoom === false && session.hasFrame) session.handleBlocked(time);
  }

  private async dial(number: number, address: string): Promise<void> {
    let dialled: Dialled | undefined;
    let failure = new NotConnected("", "not_made");
    try {
      dialled = await dial(address, this.options.security);
    } catch (error) {
      if (error instanceof NotConnected) failure = error;
    }
    const time = now();
    if (number !== this.dialNumber) {
      dialled?.channel.close();
    } else if (dialled === undefined) {
      this.log({
        level: "warn",
        event: "connect_failed",
        message: "a node cannot be reached",
        address,
        error: failure.message,
      });
      this.session.handleConnectFailed(time, failure.message, failure.contact);
      this.pump(time);
    } else if (this.session.handleConnected(time)) {
      // The old connection is left first.
      this.pump(time);
      this.address = address;
      this.heardAt = this.pingedAt = time;
      this.connection = this.connect(dialled);
      this.log({ level: "debug", event: "connected", message: "a node is connected", address });
      this.pump(time);
    } else {
      dialled.channel.close();
    }
  }

  private connect(dialled: Dialled): Connection {
    const connection: Connection = new Connection(dialled, {
      frame: (frame) => {
        if (connection !== this.connection) return;
        const time = this.heard();
        this.session.handleFrame(time, frame);
        this.pump(time);
      },
      ended: (failure, isFromNode) => {
        if (connection !== this.connection) return;
        this.connection = undefined;
        this.disconnected(failure, isFromNode);
      },
      drained: () => this.pump(now()),
      heard: () => this.heard(),
    });
    return connection;
  }

  private disconnected(failure: Failure, isFromNode: boolean): void {
    const time = now();
    const { address } = this;
    this.log({ level: "warn", event: "disconnected", message: "a stream ended", address, error: failure.message });
    this.session.handleDisconnected(time, failure, isFromNode);
    this.pump(time);
  }

  private heard(): bigint {
    this.heardCount += 1;
    this.heardAt = now();
    return this.heardAt;
  }

  private onTimer(): void {
    this.timer = this.timerDue = undefined;
    const time = now();
    this.noteIdle(time);
    this.session.handleTimeout(time);
    this.checkQuietLater();
    this.pump(time);
  }

  /** What has arrived is read first: only then is it known that nothing more has. */
  private checkQuietLater(): void {
    if (!this.isQuietChecked) return;
    this.isQuietChecked = false;
    const heardCount = this.heardCount;
    void readArrived().then(() => {
      this.isQuietChecked = true;
      const time = now();
      if (heardCount === this.heardCount) {
        this.session.handleQuiet(time);
        this.mindSilence(time);
      }
      this.pump(time);
    });
  }

  /** A connection can stand long after its other end has gone. To be called when nothing is left to be read. */
  private mindSilence(time: bigint): void {
    const { connection, session } = this;
    if (connection === undefined || !session.isOwedAnAnswer) return;
    if (time - larger(this.heardAt, this.pingedAt) < PING_AFTER) return;
    if (this.pingedAt > this.heardAt) {
      this.disconnected(create(FailureSchema, { message: "the node has fallen silent", retryable: true }), false);
    } else {
      this.pingedAt = time;
      connection.ping();
    }
  }

  /** Silence counts from when the node owes an answer. */
  private noteIdle(time: bigint): void {
    if (!this.session.isOwedAnAnswer) this.heardAt = time;
  }

  private setTimer(): void {
    const { session } = this;
    const isWaiting = this.connection !== undefined && session.isOwedAnAnswer;
    const silence = isWaiting ? larger(this.heardAt, this.pingedAt) + PING_AFTER : undefined;
    const due = session.isFinished ? undefined : earliest([session.nextTimeout(), silence]);
    if (due === this.timerDue || !this.isQuietChecked) return;
    clearTimeout(this.timer);
    this.timerDue = due;
    this.timer = undefined;
    if (due === undefined) return;
    const delay = smaller(larger(0n, due - now()), TIMER_MAX);
    this.timer = setTimeout(() => this.onTimer(), Number(delay / MS) + 1);
  }

  // What is told.

  private tellChanges(): void {
    const { session, address } = this;
    const { state } = session;
    if (state.isOpen && !this.wasOpen) {
      this.log({ level: "info", event: "session_opened", message: "a session is open", address });
    }
    this.wasOpen = state.isOpen;
    if (this.circuitTold !== session.breaker.state) {
      this.circuitTold = session.breaker.state;
      const level = this.circuitTold === "open" ? "error" : "info";
      this.log({ level, event: "circuit", message: `the circuit is ${this.circuitTold}` });
    }
  }

  private log(record: LogRecord): void {
    const { group, log } = this.options;
    // Later: the program's own code must not run within the session.
    if (log !== undefined) queueMicrotask(() => log(group === ROOT ? record : { ...record, group }));
  }
}

/** Two turns of the event loop: what had arrived by now is read behind them. */
function readArrived(): Promise<void> {
  return new Promise((read) => setImmediate(() => setImmediate(read)));
}
