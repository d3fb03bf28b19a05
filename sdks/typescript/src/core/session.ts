/**
 * A client's session with the cluster, over connections that break and sessions that are lost.
 *
 * It does nothing by itself: no clock, no I/O. Its driver owns the stream, the clock and the callers. After each input
 * it carries out `outputs`, then sends `nextFrame` until there is none, then sleeps until `nextTimeout` or the next
 * input.
 */

import { create } from "@bufbuild/protobuf";
import { Closed, type HoldfastError, type LossReason } from "../errors.js";
import {
  type ClientFrame,
  type Failure,
  FailureSchema,
  type OpenSessionResponse,
  Reason,
  type ServerFrame,
} from "../gen/holdfast/v1/holdfast_pb.js";
import { onFrame, rejected, retryAfter, type Verdict } from "./answers.js";
import { Denials } from "./denials.js";
import type { Endpoints } from "./endpoints.js";
import { earliest, larger, MS, smaller } from "./lease.js";
import { Breaker } from "./pacing.js";
import { Entry } from "./requests.js";
import { ROOT } from "./routes.js";
import { type Hello, type Output, type Settings, State } from "./state.js";

/** Within this time a node has to answer the hello, or the next one is asked. */
const HELLO_TIMEOUT = 1_000n * MS;
/** One command under one lock is served before it would pay to move to the leader. */
const SETTLING_TIME = 250n * MS;
/** A leader that takes the connection and then says nothing costs a second or two. */
const APPROACH_SPAN_MIN = 6_000n * MS;
/** A cluster all of whose nodes refuse the connection is not there, and will hardly come. */
const REFUSED_PATIENCE = 1_000n * MS;
/** Between two welcomes that are asked for only to learn a newer map. Until a node knows it, another tells nothing new. */
const MAP_FETCH_INTERVAL = 1_000n * MS;
const CLOSING_PATIENCE = 2_000n * MS;
/** The cluster remembers the ids of ended sessions for two minutes. An open that is older gets a new id. */
const OPEN_FOR = 60_000n * MS;

/** How far a try to connect got: `refused` means that nothing listens there. */
export type Contact = "not_made" | "refused" | "denied" | "made";

export interface SessionOptions {
  /** In which group of the cluster. */
  group: number;
  endpoints: Endpoints;
  settings: Settings;
  newSessionId: () => string;
  random: () => number;
  now: bigint;
}

export class Session {
  readonly breaker = new Breaker();
  readonly endpoints: Endpoints;
  readonly state: State;
  /** The lease span. */
  readonly span: bigint;
  private readonly settings: Settings;
  private readonly newSessionId: () => string;
  private link: "idle" | "paused" | "connecting" | "greeting" | "open" | "finished" = "idle";
  private address = "";
  private until = 0n;
  private hello: Hello | undefined;
  private isHelloUnsent = false;
  /** The session takes another stream: to the leader, or to the same node for its welcome. */
  private approachAt: bigint | undefined;
  private approached = "";
  private isApproaching = false;
  private isApproach = false;
  private mapFetchedAt: bigint | undefined;
  private blockedSince: bigint | undefined;
  /** A leader that could be connected to, and yet did not serve. */
  private unhelpful: string | undefined;
  /** Callers who wait for a session, and ask for nothing else. */
  private openers: Entry[] = [];
  private wasEverOpen = false;
  private readonly denials: Denials;
  /** When the first try began, as long as all that the nodes ever did was to refuse the connection. */
  private refusedSince: bigint | undefined;
  private closingUntil: bigint | undefined;

  constructor({ group, endpoints, settings, newSessionId, random, now }: SessionOptions) {
    this.endpoints = endpoints;
    this.settings = settings;
    this.newSessionId = newSessionId;
    this.span = smaller(settings.ttlMs, settings.lingerMs ?? settings.ttlMs) * MS;
    this.state = new State(newSessionId(), group, this.span, random);
    this.denials = new Denials(settings.ttlMs * MS);
    // A cluster that has told of another group was there.
    this.wasEverOpen = group !== ROOT;
    this.refusedSince = this.wasEverOpen ? undefined : now;
  }

  get outputs(): Output[] {
    return this.state.outputs;
  }

  /** Whether a node has ever answered a hello of the client. */
  get wasEverWelcome(): boolean {
    return this.wasEverOpen;
  }

  get isFinished(): boolean {
    return this.link === "finished";
  }

  /** Whether the node that serves the session has not answered something. */
  get isOwedAnAnswer(): boolean {
    return this.link === "open" && !this.state.requests.isEmpty;
  }

  // What the program wants.

  /** Opens a session now, and not with the first request. */
  handleOpen(now: bigint, caller: object, waitsUntil: bigint): void {
    const entry = new Entry("open", {}, { caller, waitsUntil });
    if (this.isFinished || this.closingUntil !== undefined) {
      this.state.complete(entry, new Closed());
    } else if (this.state.isOpen) {
      this.state.complete(entry, undefined);
    } else {
      this.openers.push(entry);
      this.beginFirst(now);
      this.connectIfNeeded(now);
    }
  }

  /** Returns the number by which `handleAbandoned` knows it. */
  handleRequest(now: bigint, entry: Entry): bigint {
    if (this.isFinished || this.closingUntil !== undefined) {
      this.state.complete(entry, new Closed());
      return 0n;
    }
    this.beginFirst(now);
    const call = this.state.ask(entry);
    this.connectIfNeeded(now);
    return call;
  }

  /** A caller who only waits for a session is gone. */
  handleOpenAbandoned(caller: object): void {
    this.openers = this.openers.filter((entry) => entry.caller !== caller);
  }

  handleAbandoned(now: bigint, call: bigint): void {
    if (this.isFinished) return;
    this.state.abandon(call);
    this.connectIfNeeded(now);
  }

  /**
   * The program needs a newer map of the groups. It comes with the welcome of a fresh stream to the same node. The present
   * stream serves until that one exists.
   */
  handleMapWanted(now: bigint): void {
    // Without a stream, or with another one on the way, a welcome comes anyway.
    if (this.link !== "open" || this.isApproaching || this.closingUntil !== undefined) return;
    const at = this.mapFetchedAt === undefined ? now : larger(now, this.mapFetchedAt + MAP_FETCH_INTERVAL);
    if (this.approachAt !== undefined && this.approachAt <= at) return;
    if (this.approachAt === undefined) this.approached = this.address;
    this.approachAt = this.mapFetchedAt = at;
  }

  handleClose(now: bigint, caller: object): void {
    const entry = new Entry("close", {}, { caller, waitsUntil: now + CLOSING_PATIENCE });
    if (this.isFinished || !this.state.isOpen) {
      this.state.complete(entry, undefined);
      this.finish();
      return;
    }
    if (this.closingUntil === undefined) {
      this.closingUntil = now + CLOSING_PATIENCE;
      this.approachAt = undefined;
      // What is held when a session is closed is given back by that.
      this.state.requests.takeOut((it) => it.kind === "release" && it.caller === undefined);
    }
    this.state.ask(entry);
  }

  private beginFirst(now: bigint): void {
    if (this.link === "idle" && !this.wasEverOpen) this.refusedSince = now;
  }

  // What the network did.

  /** False if the connection is not wanted any more. */
  handleConnected(now: bigint): boolean {
    if (this.link === "connecting") {
      this.isApproach = false;
    } else if (this.link === "open" && this.isApproaching) {
      this.state.streamBroke();
      this.disconnect(true);
      this.breaker.handleTry(now);
      this.address = this.approached;
      this.isApproach = true;
    } else {
      return false;
    }
    const openedAt = this.state.openSentAt;
    if (!this.state.isOpen && openedAt !== undefined && now - openedAt > OPEN_FOR) {
      this.state.id = this.newSessionId();
      this.state.openSentAt = undefined;
    }
    this.hello = this.state.hello(this.settings, now);
    this.isHelloUnsent = true;
    this.link = "greeting";
    this.until = now + HELLO_TIMEOUT;
    return true;
  }

  handleConnectFailed(now: bigint, message: string, contact: Contact): void {
    if (this.link === "connecting") {
      this.endpoints.couldNotReach(this.address);
      // If it was denied, another node may accept it. If none does, there will be no session.
      const isDenied = contact === "denied";
      const reason = isDenied ? Reason.UNAUTHENTICATED : Reason.UNSPECIFIED;
      this.onNoStream(now, contact, create(FailureSchema, { message, retryable: !isDenied, reason }));
    } else if (this.link === "open") {
      // It is served where it is.
      this.isApproaching = false;
    }
  }

  handleFrame(now: bigint, frame: ServerFrame): void {
    if (this.link === "greeting") {
      const requestId = this.hello?.requestId;
      const answer = frame.answers.find((it) => it.requestId === requestId);
      const result = answer?.result;
      if (result?.case === "failure") {
        this.onHelloFailed(now, result.value, true, false);
        return;
      }
      if (result?.case !== "open" && result?.case !== "resume") {
        this.onHelloUnanswered(now, "the first frame does not answer the hello");
        return;
      }
      this.onWelcome(now, result.value);
      frame.answers = frame.answers.filter((it) => it !== answer);
    }
    if (this.link !== "open") return;
    const verdict = onFrame(this.state, now, frame);
    if (this.state.endpointsTold !== undefined) this.endpoints.learn(this.state.endpointsTold);
    this.state.endpointsTold = undefined;
    this.actOn(now, verdict);
  }

  /** A proxy may have ended the stream, which knows nothing of sessions: only the denials of a node count. */
  handleDisconnected(now: bigint, failure: Failure, isFromNode: boolean): void {
    if (this.link === "greeting") this.onHelloFailed(now, failure, isFromNode, false);
    else if (this.link === "open" && failure.reason === Reason.UNKNOWN_SESSION) {
      this.replaceSession(now, "session_expired");
    } else if (this.link === "open") this.leaveNode(now, this.state.leaderIn(failure), failure.message);
  }

  /** The connection has no room for the next frame. */
  handleBlocked(now: bigint): void {
    if (this.link === "open") this.blockedSince ??= now;
  }

  // Time that passed.

  handleTimeout(now: bigint): void {
    if (this.closingUntil !== undefined && this.closingUntil <= now) {
      this.finish();
      return;
    }
    const overdue = this.openers.filter((entry) => entry.waitsUntil <= now);
    this.openers = this.openers.filter((entry) => entry.waitsUntil > now);
    for (const entry of overdue) this.state.complete(entry, this.state.unavailable(true));
    this.state.letCallersGo(now);
    this.state.checkWatched(now);
    if (this.link === "paused" && this.until <= now) {
      this.link = "idle";
      this.connectIfNeeded(now);
    } else if (this.link === "greeting" && this.until <= now) {
      this.onHelloUnanswered(now, "no answer to the hello within a second");
    } else if (this.link === "open") {
      if (this.approachAt !== undefined && this.approachAt <= now) {
        this.approachAt = undefined;
        this.isApproaching = true;
        this.outputs.push({ do: "connect", address: this.approached });
      }
      this.state.stageDue(now);
      // Only so that it is known when the next answer is due.
      this.state.requests.isAnswerOverdue(now);
    }
  }

  /** Nothing that arrived is left to be read: a node that owes an answer is left. */
  handleQuiet(now: bigint): void {
    if (this.link !== "open") return;
    if (this.state.requests.isAnswerOverdue(now)) {
      this.leaveNode(now, "", "the node does not answer");
    } else if (this.blockedSince !== undefined && this.blockedSince + this.state.answerPatience <= now) {
      this.leaveNode(now, "", "the node takes nothing more");
    }
  }

  nextTimeout(): bigint | undefined {
    const isTimed = this.link === "paused" || this.link === "greeting";
    const isBlocked = this.link === "open" && this.blockedSince !== undefined;
    return earliest([
      this.state.callersWaitUntil,
      this.state.watchedUntil,
      this.closingUntil,
      ...this.openers.map((entry) => entry.waitsUntil),
      isTimed ? this.until : undefined,
      this.link === "open" ? this.state.nextDue() : undefined,
      this.link === "open" ? this.approachAt : undefined,
      isBlocked ? (this.blockedSince ?? 0n) + this.state.answerPatience : undefined,
    ]);
  }

  /** To be called as long as the connection has room. */
  nextFrame(now: bigint): ClientFrame | undefined {
    if (this.link === "greeting" && this.isHelloUnsent) {
      this.isHelloUnsent = false;
      return this.hello?.frame;
    }
    if (this.link !== "open") return undefined;
    this.blockedSince = undefined;
    return this.state.nextFrame(now);
  }

  get hasFrame(): boolean {
    if (this.link === "greeting") return this.isHelloUnsent;
    return this.link === "open" && this.state.requests.hasStaged;
  }

  // Which node serves the session.

  private connectIfNeeded(now: bigint): void {
    const isWanted = this.openers.length > 0 || this.state.requests.hasStaged;
    const isNeeded = this.state.isOpen || isWanted || !this.breaker.isClosed;
    if (this.link !== "idle" || !isNeeded) return;
    this.breaker.handleTry(now);
    this.address = this.endpoints.nextAddress();
    this.link = "connecting";
    this.outputs.push({ do: "connect", address: this.address });
  }

  private onWelcome(now: bigint, welcome: OpenSessionResponse): void {
    this.state.backoff.reset();
    this.breaker.handleSuccess();
    this.refusedSince = undefined;
    this.wasEverOpen = true;
    this.denials.clear();
    this.endpoints.reached();
    if (this.unhelpful === this.address) this.unhelpful = undefined;
    this.state.errors.clear();
    this.state.welcomed(this.hello?.sentAt ?? now, welcome);
    this.link = "open";
    this.blockedSince = undefined;
    if (welcome.map !== undefined) this.outputs.push({ do: "map", map: welcome.map });
    this.approached = welcome.leader;
    this.isApproaching = false;
    const isBetter =
      this.approached !== this.address &&
      this.endpoints.mayFollow(this.approached) &&
      this.approached !== this.unhelpful &&
      this.span >= APPROACH_SPAN_MIN &&
      this.closingUntil === undefined;
    this.approachAt = isBetter ? now + SETTLING_TIME : undefined;
    this.endpoints.learn(welcome.endpoints);
    this.tellOpeners(undefined);
  }

  private tellOpeners(outcome: unknown): void {
    const { openers } = this;
    this.openers = [];
    for (const entry of openers) this.state.complete(entry, outcome);
  }

  private onHelloUnanswered(now: bigint, message: string): void {
    this.onHelloFailed(now, create(FailureSchema, { message, retryable: true, mayHaveHappened: true }), false, true);
  }

  private onHelloFailed(now: bigint, failure: Failure, isFromNode: boolean, withFarewell: boolean): void {
    this.disconnect(withFarewell);
    if (this.isApproach) this.unhelpful = this.address;
    this.endpoints.reached();
    const isWord = isFromNode && this.state.isOpen;
    const isDenied = isWord && this.denials.note(now, this.address, failure, this.endpoints.addresses);
    if (isDenied) this.onDenied(now, failure);
    else this.onNoStream(now, "made", failure);
  }

  /** What becomes of the session in the cluster is not known: the client can neither renew nor end it. */
  private onDenied(now: bigint, failure: Failure): void {
    this.breaker.handleSuccess();
    for (const entry of this.state.requests.takeOut(() => true)) {
      failure.mayHaveHappened = entry.firstSentAt !== undefined;
      this.state.complete(entry, rejected(failure));
    }
    this.replaceSession(now, "denied", failure.message);
  }

  private onNoStream(now: bigint, contact: Contact, failure: Failure): void {
    this.link = "idle";
    this.state.leaderLost("leader_unreachable");
    // The node served if it said what becomes of the session.
    const isVerdict = this.state.isOpen ? failure.reason === Reason.UNKNOWN_SESSION : !failure.retryable;
    if (isVerdict) this.breaker.handleSuccess();
    else this.breaker.handleFailure(now);
    this.state.errors.set(this.address, failure.message);
    if (contact !== "refused") this.refusedSince = undefined;
    const hasTriedAll = this.endpoints.hasTriedAll();
    if (this.refusedSince !== undefined && now - this.refusedSince >= REFUSED_PATIENCE && hasTriedAll) {
      // A client that has no session yet does not wait for nodes that are not there.
      this.giveUp(this.state.unavailable(false));
      this.refusedSince = now;
    } else if (contact !== "made" && !hasTriedAll) {
      // A node that is gone is no reason to keep the next one waiting.
      this.connectIfNeeded(now);
    } else if (this.state.isOpen && isVerdict) {
      this.replaceSession(now, "session_expired");
    } else if (failure.reason === Reason.SESSION_EXISTS && this.hello?.wasOpenSent) {
      // An earlier try opened it, and its time is over by now. Nothing was asked in it.
      this.replaceSession(now, "session_expired");
    } else if (isVerdict) {
      // The cluster refuses a session with these settings. The limits may change.
      this.giveUp(rejected(failure));
      this.replaceSession(now, "ended");
    } else {
      this.endpoints.followLeader(this.state.leaderIn(failure));
      this.pause(now, retryAfter(failure));
    }
  }

  private giveUp(error: HoldfastError): void {
    this.tellOpeners(error);
    for (const entry of this.state.requests.takeOut(() => true)) this.state.complete(entry, error);
  }

  private actOn(now: bigint, verdict: Verdict): void {
    if (verdict.kind === "closed") this.finish();
    else if (verdict.kind === "session_lost") this.replaceSession(now, verdict.reason);
    else if (verdict.kind === "move") this.leaveNode(now, verdict.leader, verdict.words);
  }

  /** The node does not serve the session any more, and another has to. */
  private leaveNode(now: bigint, leader: string, words: string): void {
    this.state.errors.set(this.address, words);
    this.endpoints.followLeader(leader);
    this.state.streamBroke();
    this.state.leaderLost("leader_unreachable");
    this.disconnect(this.closingUntil === undefined);
    // Not at once: the next node may not know yet that it leads.
    this.pause(now);
  }

  private replaceSession(now: bigint, reason: LossReason, words = ""): void {
    this.disconnect(false);
    this.denials.clear();
    if (this.state.isOpen) this.outputs.push({ do: "ended", reason, words });
    const isWanted = this.closingUntil === undefined;
    this.state.end(reason, isWanted);
    if (!isWanted) {
      this.finish();
      return;
    }
    this.state.id = this.newSessionId();
    this.link = "idle";
    this.connectIfNeeded(now);
  }

  /** Not so long that it would matter to a short lease. Without a session, as long as the node has told. */
  private pause(now: bigint, told = 0n): void {
    const delay = told + this.state.backoff.nextDelay();
    this.link = "paused";
    this.until = now + (told > 0n && !this.state.isOpen ? delay : smaller(delay, this.span / 20n));
  }

  private disconnect(withFarewell: boolean): void {
    this.approachAt = undefined;
    this.isApproaching = false;
    this.outputs.push({ do: "disconnect", withFarewell });
  }

  private finish(): void {
    if (this.isFinished) return;
    // A close without an answer stays without one: its caller must not take it for done.
    for (const entry of this.state.requests.takeOut((it) => it.kind === "close")) {
      this.state.complete(entry, this.state.unavailable(true));
    }
    this.tellOpeners(new Closed());
    this.state.end("session_closed", false);
    this.disconnect(false);
    this.link = "finished";
  }
}
