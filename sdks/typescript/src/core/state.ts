/** What is known about the present session: its holds, its lease, and what has no answer. */

import { create } from "@bufbuild/protobuf";
import { Closed, type LossReason, Lost, Unavailable } from "../errors.js";
import {
  type ClientFrame,
  ClientFrameSchema,
  type Failure,
  type GroupMap,
  type OpenSessionResponse,
  OperationSchema,
  type Owner,
  Tier,
} from "../gen/holdfast/v1/holdfast_pb.js";
import { type Hold, holdKey } from "./hold.js";
import { InFlight } from "./in-flight.js";
import { earliest, Leases, larger, MS, smaller } from "./lease.js";
import { Backoff } from "./pacing.js";
import { Entry } from "./requests.js";
import { ROOT } from "./routes.js";

/** How long an answer may take, beyond the request's own wait, before another node is asked. */
const ANSWER_PATIENCE_MIN = 500n * MS;
const ANSWER_PATIENCE_MAX = 3_000n * MS;
/** So that a frame stays far below the servers' limit. */
const NAMES_PER_FRAME_MAX = 256;
/** A renewal that the library makes by itself is due after a third of the TTL. */
const RENEWALS_PER_TTL = 3n;

/** What the driver of a session has to do. */
export type Output =
  /** The caller gets this: a value, or an error. */
  | { do: "complete"; caller: object; outcome: unknown }
  | { do: "queued"; caller: object; position: bigint }
  | { do: "connect"; address: string }
  /** A node has told which group has which locks. */
  | { do: "map"; map: GroupMap }
  | { do: "disconnect"; withFarewell: boolean }
  /** The session is over, with all its locks. `words` are those of the node, if it said some. */
  | { do: "ended"; reason: LossReason; words: string };

/** What a session is opened with. */
export interface Settings {
  ttlMs: bigint;
  lingerMs?: bigint;
  owner: Pick<Owner, "application" | "host" | "note" | "pid">;
}

export interface Hello {
  requestId: bigint;
  sentAt: bigint;
  /** An earlier open of this session was sent, too. */
  wasOpenSent: boolean;
  frame: ClientFrame;
}

export class State {
  /** Ids go on over the sessions of a client, so that a hold of a lost session is never taken for a later one. */
  readonly requests = new InFlight();
  readonly holds = new Map<string, Hold>();
  /** Holds without a guard whose release has no answer yet: an acquire may have entered them again. */
  readonly releasing = new Map<string, Hold>();
  /** Holds whose conversion has no answer yet, and the requests that wait for it. */
  readonly converting = new Map<bigint, bigint[]>();
  leases: Leases | undefined;
  openSentAt: bigint | undefined;
  heartbeat: bigint | undefined;
  readonly retriesDue = new Map<bigint, bigint>();
  readonly answerPatience: bigint;
  /** No caller stops waiting before then. It may be too early, and is set right when it is reached. */
  callersWaitUntil: bigint | undefined;
  /** Holds of which the program wants to hear when they are lost, and a time before which none is. */
  readonly watched = new Set<Hold>();
  watchedUntil: bigint | undefined;
  readonly renewed = new Set<Hold>();
  term = 0n;
  endpointsTold: string[] | undefined;
  readonly backoff: Backoff;
  readonly errors = new Map<string, string>();
  readonly outputs: Output[] = [];

  constructor(
    public id: string,
    /** In which group of the cluster the session is. */
    readonly group: number,
    span: bigint,
    random: () => number,
  ) {
    this.answerPatience = smaller(larger(span / 4n, ANSWER_PATIENCE_MIN), ANSWER_PATIENCE_MAX);
    this.backoff = new Backoff(random);
  }

  get isOpen(): boolean {
    return this.leases !== undefined;
  }

  hello(settings: Settings, now: bigint): Hello {
    // Read before the new id is reserved: a hello must not acknowledge its own answer.
    const ackedThrough = this.isOpen ? this.requests.ackedThrough() : 0n;
    const requestId = this.requests.reserveId();
    // A cluster of one group gets what it got from clients that know no groups.
    const id = { sessionId: this.id, requestId, group: this.group === ROOT ? 0 : this.group };
    const wasOpenSent = this.openSentAt !== undefined;
    if (!this.isOpen) this.openSentAt ??= now;
    const operation = create(OperationSchema, {
      kind: this.isOpen ? { case: "resume", value: id } : { case: "open", value: { ...id, ...settings } },
    });
    const frame = create(ClientFrameSchema, { ackedThrough, operations: [operation] });
    const sentAt = this.openSentAt !== undefined && !this.isOpen ? this.openSentAt : now;
    return { requestId, sentAt, wasOpenSent, frame };
  }

  welcomed(sentAt: bigint, welcome: OpenSessionResponse): void {
    if (this.term !== welcome.term) {
      this.term = welcome.term;
      this.restartEfficiencyTier();
    }
    if (this.leases !== undefined) this.leases.answered(sentAt, welcome.logicalTimeMs);
    else this.leases = new Leases(sentAt, welcome.logicalTimeMs, welcome.ttlMs * MS, welcome.lingerMs * MS);
  }

  /** The leader that a failure names, if it can serve this session: that of another group cannot. */
  leaderIn({ leader, group }: Failure): string {
    return group === 0 || group === this.group ? leader : "";
  }

  private restartEfficiencyTier(): void {
    this.leases?.bestEffortRestarts();
    this.endHolds((hold) => hold.isBestEffort, "leader_changed");
    this.askAgainUnderNewIds((entry) => entry.isAcquire && entry.isBestEffort);
  }

  /** The cluster forgot what was asked. What is still wanted is asked for again. */
  askAgainUnderNewIds(isMeant: (entry: Entry) => boolean): void {
    const sent = this.requests.entries().filter(([, entry]) => entry.firstSentAt !== undefined && isMeant(entry));
    for (const [id, entry] of sent.sort(([a], [b]) => (a < b ? -1 : 1))) {
      this.requests.settle(id);
      if (!entry.isAbandoned) {
        entry.firstSentAt = undefined;
        entry.wasSentBefore = false;
        this.requests.stage(entry);
      }
    }
  }

  /** Another leader may grant what is held in the memory of the last one. If that still leads, it is told. */
  leaderLost(reason: LossReason): void {
    const ended = this.leases?.leaderLost() ?? new Set();
    for (const hold of [...this.holds.values()].filter((it) => ended.has(it.lease))) {
      hold.loss.report(reason);
      this.ask(new Entry("release", {}, { hold }));
      if (!this.converting.has(hold.lease)) hold.end(reason);
    }
  }

  /** Takes a request in. Returns its id. */
  ask(entry: Entry): bigint {
    if (entry.caller !== undefined) this.callersWaitUntil = earliest([this.callersWaitUntil, entry.waitsUntil]);
    const id = this.requests.park(entry);
    entry.call = id;
    if (entry.hold === undefined) this.requests.stageAgain(id);
    else this.start(id, entry, entry.hold);
    // The servers keep no answer to it.
    if (entry.kind === "status") this.requests.markWaiting(id);
    return id;
  }

  /** Sends a request about a hold, or lets it wait for the answer to the hold's conversion. */
  private start(id: bigint, entry: Entry, hold: Hold): void {
    const behindConversion = this.converting.get(hold.lease);
    if (behindConversion !== undefined) {
      behindConversion.push(id);
      return;
    }
    if (!this.holds.has(hold.key) || hold.hasEnded) {
      const outcome = outcomeIfLost(entry, hold.loss.reason ?? "session_closed");
      this.forgetHold(hold);
      this.settle(id, outcome);
      return;
    }
    if (entry.kind === "release") {
      this.holds.delete(hold.key);
      this.releasing.set(hold.key, hold);
      this.unwatch(hold);
    } else if (entry.kind === "transfer") {
      hold.heldAs.isLeaving = true;
    } else if (entry.kind === "convert") {
      this.converting.set(hold.lease, []);
    }
    this.requests.stageAgain(id);
  }

  private stopConverting(hold: Hold): void {
    const behind = this.converting.get(hold.lease) ?? [];
    this.converting.delete(hold.lease);
    for (const id of behind) {
      const entry = this.requests.get(id);
      if (entry?.hold !== undefined) this.start(id, entry, entry.hold);
    }
  }

  /** The caller of an acquire or a convert is gone. What was granted meanwhile is released. */
  abandon(call: bigint): void {
    const found = this.requests.findCall(call);
    if (found === undefined) {
      const granted = [...this.holds.values()].filter((hold) => hold.call === call);
      for (const hold of granted) this.ask(new Entry("release", {}, { hold }));
      return;
    }
    const [id, entry] = found;
    if (entry.firstSentAt === undefined) {
      this.requests.settle(id);
      if (!entry.isParked) this.noteSettled(entry);
    } else {
      entry.caller = undefined;
      entry.isAbandoned = true;
      this.stageCancel(id, entry);
    }
  }

  stageCancel(target: bigint, entry: Entry): void {
    const tier = entry.isBestEffort ? Tier.EFFICIENCY : Tier.CORRECTNESS;
    this.requests.stage(new Entry("cancel", { target, tier }));
  }

  nextFrame(now: bigint): ClientFrame | undefined {
    if (!this.requests.hasStaged) return undefined;
    // A session whose lease is over has probably ended. Acquires wait until the node has answered something: a lost
    // session keeps what it never sent for the next one.
    const isLeaseOver = this.leases !== undefined && this.leases.sessionValidUntil() <= now;
    if (isLeaseOver) this.stageHeartbeat(now);
    const mayGo = (it: Entry) => !isLeaseOver || it.firstSentAt !== undefined || !it.isAcquire;
    const taken = this.requests.takeStaged(NAMES_PER_FRAME_MAX, mayGo);
    // A frame without operations would be a farewell.
    if (taken.length === 0) return undefined;
    const ackedThrough = this.requests.ackedThrough();
    const operations = taken.map(([id, entry]) => {
      if (entry.kind === "renew" && entry.hold !== undefined) {
        const ttl = entry.fields.ttlMs === undefined ? undefined : entry.fields.ttlMs * MS;
        this.leases?.renewalSent(entry.hold.lease, id, now, ttl);
        this.watchAgain(entry.hold);
      }
      this.requests.markSent(entry, now, now + entry.ownWait + this.answerPatience);
      return entry.operation(id);
    });
    return create(ClientFrameSchema, { ackedThrough, operations });
  }

  /** What was not answered will be sent again, except heartbeats: the resume does their work. */
  streamBroke(): void {
    this.requests.takeOut((entry) => entry.kind === "keepAlive");
    this.retriesDue.clear();
    this.heartbeat = undefined;
    this.requests.stageAllAgain();
  }

  /** The session is over: each holder and each waiter is told. Acquires that it never sent are kept. */
  end(reason: LossReason, keepsUnsent: boolean): void {
    for (const hold of this.holds.values()) hold.end(reason);
    for (const kept of [this.holds, this.releasing, this.converting, this.watched, this.renewed]) kept.clear();
    const isOver = (entry: Entry) => !(keepsUnsent && entry.isAcquire && entry.firstSentAt === undefined);
    for (const entry of this.requests.takeOut(isOver)) this.complete(entry, outcomeIfLost(entry, reason));
    this.leases = undefined;
    this.openSentAt = undefined;
    this.heartbeat = undefined;
    this.retriesDue.clear();
  }

  complete(entry: Entry, outcome: unknown): void {
    const { caller } = entry;
    entry.caller = undefined;
    if (caller !== undefined) this.outputs.push({ do: "complete", caller, outcome });
    if (this.requests.isEmpty) this.callersWaitUntil = undefined;
  }

  /** Takes a request out, and tells its caller. */
  settle(id: bigint, outcome: unknown): void {
    const entry = this.requests.settle(id);
    if (entry === undefined) return;
    this.noteSettled(entry);
    this.complete(entry, outcome);
  }

  noteSettled(entry: Entry): void {
    const { hold } = entry;
    if (hold === undefined) return;
    if (entry.kind === "convert") this.stopConverting(hold);
    else if (entry.kind === "release" && this.releasing.delete(hold.key)) this.forgetLease(hold);
    else if (entry.kind === "renew" && entry.caller === undefined) hold.isRenewing = false;
  }

  forgetHold(hold: Hold): void {
    if (!this.holds.delete(hold.key)) return;
    this.unwatch(hold);
    this.forgetLease(hold);
  }

  private forgetLease(hold: Hold): void {
    // Guards that entered the hold again may still need its lease.
    const mayBeShared = hold.lease !== hold.entry || hold.wasEntered;
    const others = mayBeShared ? [...this.holds.values(), ...this.releasing.values()] : [];
    if (!others.some((other) => other.lease === hold.lease)) this.leases?.ended(hold.lease);
  }

  endHolds(isMeant: (hold: Hold) => boolean, reason: LossReason): void {
    for (const hold of [...this.holds.values()].filter(isMeant)) {
      hold.end(reason);
      this.forgetHold(hold);
    }
  }

  hasHold(acquire: bigint, entry: bigint): boolean {
    return this.holds.has(holdKey(acquire, entry));
  }

  /** The hold of this name that an acquire has entered again, if its lease is known. */
  enteredBy(acquire: bigint, name: string): Hold | undefined {
    const holds = [...this.holds.values(), ...this.releasing.values()];
    return holds.find((hold) => hold.acquire === acquire && hold.name === name && hold.validUntil() > 0n);
  }

  /** The program wants to hear of the loss, also if no message tells it. */
  watch(hold: Hold): void {
    if (!this.holds.has(hold.key)) return;
    this.watched.add(hold);
    this.watchAgain(hold);
  }

  watchAgain(hold: Hold): void {
    if (this.watched.has(hold)) this.watchedUntil = earliest([this.watchedUntil, hold.validUntil()]);
  }

  private unwatch(hold: Hold): void {
    this.watched.delete(hold);
    this.renewed.delete(hold);
  }

  checkWatched(now: bigint): void {
    if (this.watchedUntil === undefined || now < this.watchedUntil) return;
    for (const hold of [...this.watched]) {
      try {
        hold.check(now);
      } catch {
        this.watched.delete(hold);
      }
    }
    this.watchedUntil = earliest([...this.watched].map((hold) => hold.validUntil()));
  }

  renewByItself(hold: Hold, ttl: bigint, now: bigint): void {
    hold.renews = ttl;
    hold.renewalDue = now + ttl / RENEWALS_PER_TTL;
    this.renewed.add(hold);
  }

  /** Heartbeats, renewals and retries whose time has come. */
  stageDue(now: bigint): void {
    this.stageHeartbeat(now);
    for (const hold of [...this.renewed].filter((it) => it.renewalDue <= now && !it.isRenewing)) {
      if (hold.loss.reason !== undefined || hold.renews === undefined) {
        this.renewed.delete(hold);
        continue;
      }
      hold.isRenewing = true;
      hold.renewalDue = now + hold.renews / RENEWALS_PER_TTL;
      this.ask(new Entry("renew", { ttlMs: hold.renews / MS }, { hold }));
    }
    for (const [id, due] of [...this.retriesDue]) {
      if (due > now) continue;
      this.retriesDue.delete(id);
      this.requests.stageAgain(id);
    }
  }

  private stageHeartbeat(now: bigint): void {
    if (this.leases !== undefined && this.heartbeat === undefined && this.leases.heartbeatDue() <= now) {
      this.heartbeat = this.requests.stage(new Entry("keepAlive"));
    }
  }

  /** Callers who have waited as long as they wanted to. What they asked for goes on until they abandon it. */
  letCallersGo(now: bigint): void {
    if (this.callersWaitUntil === undefined || now < this.callersWaitUntil) return;
    const waiting = this.requests.entries().filter(([, entry]) => entry.caller !== undefined);
    for (const [, entry] of waiting) {
      if (entry.waitsUntil <= now) this.complete(entry, this.unavailable(entry.firstSentAt !== undefined));
    }
    const stillWaiting = waiting.filter(([, entry]) => entry.caller !== undefined);
    this.callersWaitUntil = earliest(stillWaiting.map(([, entry]) => entry.waitsUntil));
  }

  unavailable(mayHaveHappened: boolean): Unavailable {
    const words = [...this.errors].map(([address, why]) => `${address}: ${why}`).join("; ");
    return new Unavailable(words || "the request is still on its way", mayHaveHappened);
  }

  nextDue(): bigint | undefined {
    const renewals = [...this.renewed].filter((hold) => !hold.isRenewing).map((hold) => hold.renewalDue);
    const heartbeat = this.heartbeat === undefined ? this.leases?.heartbeatDue() : undefined;
    return earliest([...this.retriesDue.values(), ...renewals, heartbeat, this.requests.answersDueFrom]);
  }
}

/** What a request comes to if its hold, or its session, has ended. */
function outcomeIfLost(entry: Entry, reason: LossReason): unknown {
  // The end of the session freed the lock. A session that the client was denied lives on, until its TTL.
  if (entry.kind === "release" && reason !== "denied") return "expired";
  if (entry.kind === "close") return undefined;
  return reason === "session_closed" && entry.hold === undefined ? new Closed() : new Lost(reason);
}
