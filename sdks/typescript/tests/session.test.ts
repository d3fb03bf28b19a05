/** What a session does, seen by its driver. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { failureOf, isOfNode } from "#dist/connection.js";
import { Denials } from "#dist/core/denials.js";
import { MS } from "#dist/core/lease.js";
import { Busy, Closed, Lost, QuotaExceeded, Rejected, TimedOut, Unauthenticated, Unavailable } from "#dist/errors.js";
import { EndReason, FailureSchema, Mode, Reason, ReleaseOutcome, Tier } from "#dist/gen/holdfast/v1/holdfast_pb.js";
import { holding, Player, type Result, SECOND, TTL_MS } from "./player.js";

test("the first request opens a session, and nothing else is sent before the welcome", () => {
  const player = new Player();
  assert.equal(player.session.nextTimeout(), undefined);
  player.acquire("g", "a");
  assert.deepEqual(player.connects, ["a:1"]);
  assert.ok(player.session.handleConnected(player.now));
  assert.equal(player.sent("open").ttlMs, TTL_MS);
  assert.equal(player.frame(), undefined);
});

test("an open that is older than a minute gets another id", () => {
  const player = new Player().acquire("g", "a", { waitMs: 600_000n });
  const ids = [0, 1].map((round) => {
    if (round > 0) player.untilConnecting();
    assert.ok(player.session.handleConnected(player.now));
    const { sessionId } = player.sent("open");
    player.after(61n * SECOND).breaks();
    return sessionId;
  });
  assert.notEqual(ids[0], ids[1]);
});

test("a client that every node denies is told so", () => {
  const player = new Player().acquire("g", "a");
  for (const _ of [0, 1]) {
    player.session.handleConnectFailed(player.now, "no TLS connection", "denied");
    player.settle();
  }
  assert.ok(player.completed.get("g") instanceof Unauthenticated);
  assert.deepEqual(player.connects, ["a:1", "b:2"]);
});

test("an unanswered request goes out again under its old id", () => {
  const player = new Player().acquire("g", "a").welcome();
  const first = player.sent("acquire");
  player.breaks();
  assert.deepEqual(player.farewells, [true]);
  assert.deepEqual(player.reconnects().sent("acquire"), first);
});

test("a denied copy of a request may have happened, and an acquire is cancelled", () => {
  const player = holding().acquire("w", "b", { waitMs: 60_000n });
  const hold = player.hold();
  const acquire = player.sent("acquire").requestId;
  player.ask("t", "transfer", { toPublicSessionId: "00" }, { hold });
  const transfer = player.sent("transfer").requestId;
  player.breaks().reconnects().frame();
  player.fail(transfer, Reason.PERMISSION_DENIED);
  assert.throws(() => hold.check(player.now), /handed/);
  player.fail(acquire, Reason.PERMISSION_DENIED);
  assert.ok((player.completed.get("w") as Rejected).mayHaveHappened);
  assert.equal(player.sent("cancel").target, acquire);
});

test("a resume has a higher number than every hello before", () => {
  const player = holding();
  const numbers = [0, 1, 2].map(() => {
    player.breaks().untilConnecting();
    assert.ok(player.session.handleConnected(player.now));
    return Number(player.settle().sent("resume").requestId);
  });
  assert.deepEqual(
    numbers,
    [...new Set(numbers)].sort((a, b) => a - b),
  );
});

test("acknowledgement stops before the oldest unanswered request", () => {
  const player = holding().acquire("x", "x").acquire("y", "y");
  const frame = player.frame();
  const [first = 0n, second = 0n] = frame?.operations.map((it) => it.kind.value?.requestId) ?? [];
  assert.equal(frame?.ackedThrough, first - 1n);
  const busy: Result = { case: "acquire", value: { outcome: { case: "busy", value: {} } } };
  player.answer(second, busy);
  assert.ok(player.completed.get("y") instanceof Busy);
  assert.equal(player.acquire("z", "z").frame()?.ackedThrough, first - 1n);
  player.answer(first, busy);
  assert.equal(player.acquire("w", "w").frame()?.ackedThrough, second);
});

test("a queued acquire does not hold the acknowledgement back", () => {
  const player = holding().acquire("x", "x", { waitMs: 60_000n });
  const { requestId } = player.sent("acquire");
  player.hear({ notices: [{ kind: { case: "queued", value: { requestId, position: 1n } } }] });
  assert.equal(player.acquire("y", "y").frame()?.ackedThrough, requestId);
});

test("a guard gives no token past 98 percent of the TTL, and stays lost", () => {
  const player = holding();
  const hold = player.hold();
  hold.check(player.now + 29_398n * MS - 1n);
  assert.throws(() => hold.check(player.now + 29_398n * MS), /no heartbeat/);
  assert.throws(() => hold.check(player.now), Lost);
});

test("a heartbeat goes out a third of the TTL after the last answered sending", () => {
  const player = holding();
  const sentAt = player.now;
  player.timePasses();
  assert.equal(player.now, sentAt + 10n * SECOND);
  const { requestId } = player.sent("keepAlive");
  player.after(5n * MS).answer(requestId, { case: "keepAlive", value: { logicalTimeMs: player.logicalMs } });
  assert.equal(player.hold().validUntil(), sentAt + 10n * SECOND + 29_398n * MS);
});

test("ten thousand locks cost one heartbeat", () => {
  const player = new Player();
  for (let number = 0; number < 10_000; number++) player.acquire(`g${number}`, `lock/${number}`);
  player.welcome();
  for (let frame = player.frame(); frame; frame = player.frame()) {
    for (const { kind } of frame.operations)
      player.grant(kind.value?.requestId ?? 0n, "lock", kind.value?.requestId ?? 0n);
  }
  player.timePasses();
  player.sent("keepAlive");
});

test("a release does not keep the session alive", () => {
  const player = holding();
  const validUntil = player.hold().validUntil();
  player.acquire("other", "b");
  player.grant(player.sent("acquire").requestId, "b", 8n);
  player.after(2n * SECOND).ask("r", "release", {}, { hold: player.hold("other") });
  const { requestId } = player.sent("release");
  const value = { logicalTimeMs: player.logicalMs, outcome: ReleaseOutcome.RELEASED };
  player.answer(requestId, { case: "release", value });
  assert.equal(player.completed.get("r"), "released");
  assert.equal(player.hold().validUntil(), validUntil);
});

test("a node that owes an answer is left when nothing is left to be read", () => {
  const player = new Player().acquire("g", "a").welcome();
  player.sent("acquire");
  player.timePasses();
  player.session.handleQuiet(player.now);
  assert.deepEqual(player.settle().farewells, [true]);
  player.reconnects().sent("acquire");
});

test("a caller that is gone is cancelled, and a grant is given back once", () => {
  const player = new Player().acquire("g", "a", { waitMs: 60_000n }).welcome();
  const acquire = player.sent("acquire").requestId;
  const cancel = player.abandon("g").sent("cancel");
  assert.equal(cancel.target, acquire);
  const release = player.grant(acquire, "a", 9n).sent("release");
  assert.deepEqual([release.token, release.acquireRequestId], [9n, acquire]);
  const value = { name: "a", token: 9n, guarantee: 1, acquireRequestId: acquire };
  player.answer(cancel.requestId, { case: "cancel", value: { outcome: { case: "alreadyGranted", value } } });
  assert.equal(player.frame(), undefined);
  assert.equal(player.session.state.holds.size, 0);
});

test("a request that never went out is forgotten with its caller", () => {
  assert.equal(new Player().acquire("g", "a").abandon("g").welcome().frame(), undefined);
});

test("what was granted and did not reach its caller is released", () => {
  assert.equal(holding().abandon("g").sent("release").token, 7n);
});

test("a lost session is told to holders, and the next request opens another", () => {
  const player = holding().acquire("sent", "b");
  player.sent("acquire");
  player.hear({ notices: [{ kind: { case: "sessionEnded", value: { reason: EndReason.KILLED } } }] });
  assert.equal(player.hold().loss.reason, "session_killed");
  assert.ok(player.completed.get("sent") instanceof Lost);
  player.acquire("next", "c");
  assert.ok(player.session.handleConnected(player.now));
  assert.equal(player.sent("open").sessionId, "session 2");
});

test("an acquire waits while the lease is over, and goes to the next session", () => {
  const player = holding()
    .after(30n * SECOND)
    .acquire("late", "b");
  // A caller may see the pause of the process before the timer fires.
  const { requestId } = player.sent("keepAlive");
  assert.equal(player.frame(), undefined, "the acquire was sent under the old session");
  player.fail(requestId, Reason.UNKNOWN_SESSION);
  assert.notEqual(player.hold().loss.reason, undefined);
  const acquire = player.welcome().sent("acquire");
  player.grant(acquire.requestId, "b", 8n).hold("late").check(player.now);
});

test("an acquire goes out when a late heartbeat was answered after all", () => {
  const player = holding()
    .after(30n * SECOND)
    .acquire("late", "b");
  const { requestId } = player.sent("keepAlive");
  player.answer(requestId, { case: "keepAlive", value: { logicalTimeMs: player.logicalMs } });
  assert.equal(player.sent("acquire").name, "b");
});

test("losses after a resume are told by token, and of readers by their acquire", () => {
  const player = holding();
  for (const caller of ["r1", "r2"]) {
    player.acquire(caller, "r", { mode: Mode.SHARED });
    player.grant(player.sent("acquire").requestId, "r", 8n, { mode: Mode.SHARED });
  }
  const [first, second] = [player.hold("r1"), player.hold("r2")];
  player.breaks().reconnects();
  const tell = (token: bigint, acquireRequestId = 0n) =>
    player.hear({ notices: [{ kind: { case: "holdEnded", value: { token, acquireRequestId } } }] });
  tell(8n);
  assert.deepEqual([first.loss.reason, second.loss.reason], [undefined, undefined]);
  tell(8n, first.acquire);
  assert.deepEqual([first.loss.reason, second.loss.reason], ["ended", undefined]);
  tell(7n);
  assert.equal(player.hold().loss.reason, "ended");
});

test("a node that does not lead is left for the leader that it names", () => {
  const player = new Player().acquire("g", "a").welcome();
  const acquire = player.sent("acquire");
  player.fail(acquire.requestId, Reason.NOT_LEADER, { retryable: true, leader: "c:3" }).reconnects();
  assert.equal(player.connects.at(-1), "c:3");
  assert.deepEqual(player.sent("acquire"), acquire);
});

test("an overloaded node gets the request again after a pause", () => {
  const player = new Player().acquire("g", "a").welcome();
  const acquire = player.sent("acquire");
  player.fail(acquire.requestId, Reason.OVERLOADED, { retryable: true });
  assert.equal(player.frame(), undefined);
  assert.deepEqual(player.timePasses().sent("acquire"), acquire);
});

test("a refusal is told with its reason", () => {
  const player = new Player().acquire("g", "a").welcome();
  player.fail(player.sent("acquire").requestId, Reason.FROZEN);
  const error = player.completed.get("g");
  assert.ok(error instanceof Rejected && error.reason === "frozen" && error.retryable);
});

test("a refused heartbeat is no sample", () => {
  const player = holding();
  const validUntil = player.hold().validUntil();
  player.timePasses();
  player.fail(player.sent("keepAlive").requestId, Reason.UNAUTHENTICATED);
  assert.equal(player.hold().validUntil(), validUntil);
  assert.deepEqual(player.farewells, [true]);
});

test("a wait that ended unseen timed out only if its time may be over", () => {
  for (const [waitMs, expected] of [
    [1_000n, TimedOut],
    [600_000n, Lost],
  ] as const) {
    const player = new Player().acquire("g", "a", { waitMs }).welcome();
    const { requestId } = player.sent("acquire");
    player.hear({ notices: [{ kind: { case: "queued", value: { requestId, position: 1n } } }] });
    player.after(2n * SECOND).fail(requestId, Reason.ANSWER_DISCARDED);
    assert.ok(player.completed.get("g") instanceof expected);
  }
});

test("a renewal that shortens a hold counts from its sending", () => {
  const player = holding();
  const hold = player.hold();
  player.ask("r", "renew", { ttlMs: 5_000n }, { hold });
  assert.ok(hold.validUntil() > player.now + 20n * SECOND);
  player.sent("renew");
  assert.equal(hold.validUntil(), player.now + 4_898n * MS);
});

test("the library renews a hold with a TTL of its own", () => {
  const player = new Player();
  player.ask("g", "acquire", { name: "a", ttlMs: 3_000n }, { renews: 3n * SECOND }).welcome();
  player.grant(player.sent("acquire").requestId, "a", 7n, { deadlineMs: player.logicalMs + 3_000n });
  const grantedAt = player.now;
  player.timePasses();
  assert.equal(player.now, grantedAt + SECOND);
  const renew = player.sent("renew");
  assert.equal(renew.ttlMs, 3_000n);
  const value = { logicalTimeMs: player.logicalMs, deadlineMs: player.logicalMs + 3_000n };
  player.answer(renew.requestId, { case: "renew", value });
  player.hold().check(player.now + 2_900n * MS);
});

test("requests about a hold wait for the answer to its conversion", () => {
  const player = holding();
  const hold = player.hold();
  player.ask("c", "convert", { mode: Mode.SHARED, waitMs: 0n }, { hold }).ask("r", "release", {}, { hold });
  const { requestId } = player.sent("convert");
  const value = { name: "a", token: 12n, guarantee: 1, mode: Mode.SHARED };
  player.answer(requestId, { case: "acquire", value: { outcome: { case: "granted", value } } });
  assert.equal(player.sent("release").token, 12n);
});

test("a transfer that was refused gives the token back", () => {
  const player = holding();
  const hold = player.hold();
  player.ask("t", "transfer", { toPublicSessionId: "00" }, { hold });
  assert.throws(() => hold.check(player.now), /handed/);
  player.fail(player.sent("transfer").requestId, Reason.NO_SUCH_WAITER);
  hold.check(player.now);
});

test("holds of the efficiency tier end with the stream, and are released on the next", () => {
  const player = holding({ guarantee: 2 }).breaks();
  assert.equal(player.hold().loss.reason, "leader_unreachable");
  assert.equal(player.reconnects().sent("release").tier, Tier.EFFICIENCY);
});

test("nodes that refuse the connection are reported after a second", () => {
  const player = new Player().acquire("g", "a");
  let tried = 0;
  while (!player.completed.has("g")) {
    if (player.connects.length > tried) {
      tried += 1;
      player.session.handleConnectFailed(player.now, "refused", "refused");
      player.settle();
    } else player.timePasses();
  }
  assert.ok(player.completed.get("g") instanceof Unavailable);
  assert.ok(player.now < 102n * SECOND);
});

test("the circuit opens after three seconds, and closes with the first node that serves", () => {
  const player = holding().breaks();
  let tried = player.connects.length;
  while (player.session.breaker.isClosed) {
    if (player.connects.length > tried) {
      tried += 1;
      player.after(300n * MS).session.handleConnectFailed(player.now, "no route", "not_made");
      player.settle();
    } else player.timePasses();
  }
  assert.ok(player.reconnects().session.breaker.isClosed);
});

test("a caller is let go when its time is over", () => {
  const player = new Player().acquire("g", "a", { waitMs: 600_000n }).welcome();
  const { requestId } = player.sent("acquire");
  player.hear({ notices: [{ kind: { case: "queued", value: { requestId, position: 1n } } }] });
  player.after(60n * SECOND).session.handleTimeout(player.now);
  const error = player.settle().completed.get("g");
  assert.ok(error instanceof Unavailable && error.mayHaveHappened);
});

test("a closed session takes nothing more", () => {
  const player = holding().close("close");
  player.answer(player.sent("close").requestId, { case: "close", value: {} });
  assert.equal(player.completed.get("close"), undefined);
  assert.ok(player.completed.has("close"));
  assert.equal(player.hold().loss.reason, "session_closed");
  assert.ok(player.acquire("late", "b").completed.get("late") instanceof Closed);
});

function refuseResume(player: Player, reason: Reason, told: MessageInitShape<typeof FailureSchema> = {}): void {
  assert.ok(player.session.handleConnected(player.now));
  player.settle();
  player.fail(player.sent("resume").requestId, reason, told);
}

function denyResume(player: Player): void {
  refuseResume(player, Reason.UNAUTHENTICATED, { message: "the token is not known" });
}

const PATIENCE = 5n * SECOND;
type Deny = (player: Player) => void;

const dialled = (player: Player) => player.untilConnecting().connects.at(-1) ?? "";

const denyAll: Deny = (player) => {
  player.untilConnecting();
  denyResume(player);
};

/** The other node may not have applied yet what makes the token known. */
function denyUnder(leader: string): Deny {
  return (player) => {
    if (dialled(player) === leader) denyResume(player);
    else refuseResume(player, Reason.UNAUTHENTICATED, { retryable: true, leader });
  };
}

/** Denies until the client gives its session up, or for 7 s. */
function givesUp(player: Player, deny: Deny): boolean {
  deny(player);
  const began = player.now;
  while (player.ended.length === 0 && player.now - began < 7n * SECOND) {
    player.hold().check(player.now);
    deny(player);
  }
  if (player.ended.length === 0) return false;
  const span = player.now - began;
  assert.ok(span >= PATIENCE && span <= PATIENCE + SECOND, `given up after ${span}`);
  assert.deepEqual(player.ended, ["denied"]);
  assert.throws(() => player.hold().check(player.now), /no node accepts/);
  return true;
}

test("a session that all nodes deny for the patience is lost", () => {
  const player = holding().acquire("w", "b", { waitMs: 60_000n });
  player.frame();
  player.breaks().ask("r", "renew", {}, { hold: player.hold() });
  assert.ok(givesUp(player, denyAll));
  const [waiter, renewal] = ["w", "r"].map((caller) => player.completed.get(caller) as Unauthenticated);
  assert.ok(waiter instanceof Unauthenticated && waiter.mayHaveHappened);
  assert.ok(renewal instanceof Unauthenticated && !renewal.mayHaveHappened);
  assert.ok(player.session.breaker.isClosed);
  // A new credential opens a new session.
  player.acquire("next", "a").welcome();
});

test("a credential that is replaced within the patience keeps the locks", () => {
  const player = holding().breaks();
  denyAll(player);
  for (const began = player.now; player.now - began < PATIENCE - SECOND; ) denyAll(player);
  player.reconnects().hold().check(player.now);
  assert.deepEqual(player.ended, []);
});

test("a short TTL makes the patience short", () => {
  const denials = new Denials(6n * SECOND);
  const denial = create(FailureSchema, { reason: Reason.UNAUTHENTICATED });
  const told = [0n, 1n, 2n, 3n, 4n].map((half) => denials.note((half * SECOND) / 2n, "a:1", denial, ["a:1"]));
  assert.deepEqual(told, [false, false, false, false, true]);
});

test("a node that cannot be reached does not keep a denied session", () => {
  const deny: Deny = (player) => {
    if (dialled(player) === "b:2") {
      // The next node is dialled at once.
      player.session.handleConnectFailed(player.now, "no route to the host", "not_made");
      player.settle();
    }
    denyResume(player);
  };
  assert.ok(givesUp(holding().breaks(), deny));
});

test("it is enough that the leader is sure of its denial", () => {
  for (const leader of ["a:1", "b:2"]) assert.ok(givesUp(holding().breaks(), denyUnder(leader)));
});

test("a session is not given up while no node is sure of its denial", () => {
  const player = holding().breaks();
  // The named leader is none of the nodes that the client knows, so its word does not count either.
  assert.ok(!givesUp(player, denyUnder("x:9")));
  assert.ok(player.connects.includes("x:9"));
});

test("a node that answers a resume otherwise has not denied it", () => {
  const answer: Deny = (player) => {
    if (dialled(player) === "b:2") refuseResume(player, Reason.NO_QUORUM, { retryable: true });
    else denyResume(player);
  };
  assert.ok(!givesUp(holding().breaks(), answer));
});

/** The stream ends before the hello is answered. */
function endStream(reason: Reason, isFromNode: boolean): Deny {
  return (player) => {
    player.untilConnecting();
    assert.ok(player.session.handleConnected(player.now));
    player.session.handleDisconnected(player.now, create(FailureSchema, { reason }), isFromNode);
    player.settle();
  };
}

test("a denial that ends the stream counts only if a node said it", () => {
  assert.ok(givesUp(holding().breaks(), endStream(Reason.CREDENTIAL_EXPIRED, true)));
  assert.ok(!givesUp(holding().breaks(), endStream(Reason.UNAUTHENTICATED, false)));
});

test("a status without the metadata of a node is not of a node, and keeps its reason for the caller", () => {
  const denied = (metadata: Metadata) =>
    ({ code: status.UNAUTHENTICATED, details: "who are you?", message: "", metadata }) as ServiceError;
  const ofProxy = denied(new Metadata());
  assert.equal(isOfNode(ofProxy), false);
  assert.equal(failureOf(ofProxy).reason, Reason.UNAUTHENTICATED);
  const metadata = new Metadata();
  metadata.set("holdfast-reason", "credential_expired");
  assert.equal(isOfNode(denied(metadata)), true);
  assert.equal(failureOf(denied(metadata)).reason, Reason.CREDENTIAL_EXPIRED);
});

test("a denial that is older than the patience does not count", () => {
  const player = holding().breaks();
  denyAll(player);
  denyResume(player.untilConnecting().after(PATIENCE + MS));
  player.hold().check(player.now);
});

test("a node that lets the client resume ends the count of denials", () => {
  const player = holding().breaks();
  denyAll(player);
  const began = player.now;
  player.reconnects().breaks().untilConnecting();
  denyResume(player.after(began + PATIENCE - player.now));
  player.hold().check(player.now);
  assert.deepEqual(player.ended, []);
});

const rateLimited = (retryAfterMs: bigint) => ({ retryable: true, retryAfterMs });

test("a caller that does not wait until the node takes the request is told at once", () => {
  const player = new Player().acquire("w", "b").welcome();
  const { requestId } = player.sent("acquire");
  // The caller waits for a minute.
  player.fail(requestId, Reason.RATE_LIMITED, rateLimited(2_000n));
  const sentBack = player.now;
  assert.equal(player.frame(), undefined);
  assert.equal(player.timePasses().sent("acquire").requestId, requestId);
  assert.ok(player.now >= sentBack + 2n * SECOND);
  player.fail(requestId, Reason.RATE_LIMITED, rateLimited(58_000n));
  const told = player.completed.get("w");
  assert.ok(told instanceof QuotaExceeded && told instanceof Rejected);
  assert.deepEqual([told.reason, told.retryAfterMs, told.mayHaveHappened], ["rate_limited", 58_000, false]);
});

test("a request that may have been carried out is sent again, however long that takes", () => {
  const player = new Player().acquire("w", "b").welcome();
  const { requestId } = player.sent("acquire");
  player.breaks().reconnects().frame();
  player.fail(requestId, Reason.RATE_LIMITED, rateLimited(3_600_000n));
  assert.ok(!player.completed.has("w"));
});

test("a session that may not be opened yet is opened when the node said", () => {
  const player = new Player().acquire("g", "a");
  assert.ok(player.session.handleConnected(player.now));
  player.fail(player.sent("open").requestId, Reason.RATE_LIMITED, rateLimited(2_000n));
  const refused = player.now;
  player.timePasses();
  assert.equal(player.connects.length, 2);
  assert.ok(player.now >= refused + 2n * SECOND);
});

test("an open whose session has ended unseen is tried again under another id", () => {
  const player = new Player().acquire("g", "a");
  const sessions: string[] = [];
  for (let round = 0; round < 2; round += 1) {
    if (round > 0) player.untilConnecting();
    assert.ok(player.session.handleConnected(player.now));
    player.settle();
    const open = player.sent("open");
    sessions.push(open.sessionId);
    // The cluster opens the session, the answer is lost, and the TTL passes.
    if (round === 0) player.breaks();
    else player.fail(open.requestId, Reason.SESSION_EXISTS);
  }
  assert.ok(!player.completed.has("g"));
  player.welcome();
  assert.equal(player.sent("acquire").name, "a");
  assert.deepEqual(sessions, ["session 1", "session 1"]);
  // The first open of a session cannot be a copy.
  const other = new Player().acquire("g", "a");
  assert.ok(other.session.handleConnected(other.now));
  other.fail(other.sent("open").requestId, Reason.SESSION_EXISTS);
  assert.equal((other.completed.get("g") as Rejected).reason, "session_exists");
});

for (const group of [1, 2]) {
  test(`only a cluster that was never there is given up when all nodes refuse: group ${group}`, () => {
    const player = new Player(group).acquire("a", "x", { waitMs: 60_000n });
    for (let round = 0; round < 100; round++) {
      player.session.handleConnectFailed(player.now, "connection refused", "refused");
      player.after(SECOND / 2n);
      player.session.handleTimeout(player.now);
      player.settle();
    }
    assert.equal(player.completed.has("a"), group === 1);
  });
}
