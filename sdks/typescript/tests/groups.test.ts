/** Slots, maps and refusals: what a client of several groups decides, without a cluster. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import { create } from "@bufbuild/protobuf";
import { Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { failureOf } from "#dist/connection.js";
import { Endpoints } from "#dist/core/endpoints.js";
import { MS } from "#dist/core/lease.js";
import { Entry } from "#dist/core/requests.js";
import { Redirects, ROOT, Routes } from "#dist/core/routes.js";
import { SLOTS, slotOf } from "#dist/core/slots.js";
import { SeveralGroups, WrongGroup } from "#dist/errors.js";
import { type GroupMap, GroupMapSchema, Reason, Tier } from "#dist/gen/holdfast/v1/holdfast_pb.js";
import { SessionIds } from "#dist/sessions.js";
import { holding, Player, SECOND } from "./player.js";
import { ROOT as REPOSITORY } from "./server.js";

type Run = [group: number, first: number, count: number];

/** Each line of the map is a group with some of its slots; a group of several lines has them one after the other. */
function mapOf(epoch: bigint, ...runs: Run[]): GroupMap {
  const groups: { group: number; leader: string; slots: { first: number; count: number }[] }[] = [];
  for (const [group, first, count] of runs) {
    const known = groups.at(-1);
    if (known?.group === group) known.slots.push({ first, count });
    else groups.push({ group, leader: `node-${group}-${epoch}:1`, slots: [{ first, count }] });
  }
  return create(GroupMapSchema, { epoch, groups });
}

/** The slots of the vectors: `orders` 138, `b` 196, `a` 816. */
const THREE: Run[] = [
  [1, 190, 600],
  [2, 0, 190],
  [7, 790, 3_306],
];

function routesOf(...maps: GroupMap[]): Routes {
  const routes = new Routes();
  for (const map of maps) routes.learn(map);
  return routes;
}

const acquire = (name: string, tier = Tier.CORRECTNESS) => new Entry("acquire", { name, tier });
const acquireAll = (names: string[], tier = Tier.CORRECTNESS) =>
  new Entry("acquireAll", { members: names.map((name) => ({ name, mode: 1 })), tier });
const refusal = (mapEpoch: bigint, mayHaveHappened = false) =>
  new WrongGroup("wrong_group", "elsewhere", mayHaveHappened, mapEpoch);

test("each recorded name has the recorded slot", () => {
  const lines = readFileSync(new URL("crates/core/tests/vectors/slots.txt", REPOSITORY), "utf8").split("\n");
  const vectors = lines.filter((line) => line !== "" && !line.startsWith("#"));
  assert.ok(vectors.length >= 25);
  for (const line of vectors) {
    const [slot = "", ...name] = line.split("\t");
    assert.equal(slotOf(name.join("\t")), Number(slot), line);
  }
});

describe("routes", () => {
  test("without a map everything is in the root group", () => {
    const routes = new Routes();
    assert.equal(routes.groupOf(acquire("orders")), ROOT);
    assert.equal(routes.groupOf(acquireAll(["a", "b", "c"])), ROOT);
    assert.equal(routes.epoch, 0n);
  });

  test("a name belongs to the group of its slot, and names with one tag belong together", () => {
    const routes = routesOf(mapOf(1n, ...THREE));
    assert.deepEqual(
      ["orders", "b", "a"].map((name) => routes.groupOf(acquire(name))),
      [2, 1, 7],
    );
    assert.equal(routes.groupOf(acquireAll(["{orders}/1", "lines/{orders}"])), 2);
    assert.equal(routes.groupOf(new Entry("status", { name: "a" })), 7);
    assert.deepEqual([routes.leaderOf(7), routes.leaderOf(3)], ["node-7-1:1", ""]);
  });

  test("locks in several groups are refused with a hint", () => {
    const routes = routesOf(mapOf(1n, ...THREE));
    assert.throws(
      () => routes.groupOf(acquireAll(["a", "a", "b"])),
      (error) => {
        assert.ok(error instanceof SeveralGroups);
        assert.deepEqual([error.reason, error.retryable, error.mayHaveHappened], ["several_groups", false, false]);
        for (const part of ["'a'", "'b'", "7 and 1", "{order}/a and {order}/b"])
          assert.ok(error.message.includes(part));
        return true;
      },
    );
  });

  test("the efficiency tier is in the root group", () => {
    const routes = routesOf(mapOf(1n, ...THREE));
    assert.equal(routes.groupOf(acquire("a", Tier.EFFICIENCY)), ROOT);
    assert.equal(routes.groupOf(acquireAll(["a", "orders"], Tier.EFFICIENCY)), ROOT);
  });

  test("the newest map counts, in whatever order they come", () => {
    const maps = [1n, 2n, 3n].map((epoch) =>
      mapOf(epoch, [1, 0, Number(epoch)], [2, Number(epoch), 4_096 - Number(epoch)]),
    );
    for (const order of [
      [0, 1, 2],
      [2, 1, 0],
      [1, 2, 0],
      [2, 0, 1],
    ]) {
      const routes = new Routes();
      let epoch = 0n;
      for (const place of order) {
        const map = maps[place] as GroupMap;
        assert.equal(routes.learn(map), map.epoch > epoch);
        assert.ok(routes.epoch >= epoch);
        epoch = routes.epoch;
      }
      assert.deepEqual([routes.epoch, routes.leaderOf(2)], [3n, "node-2-3:1"]);
    }
  });

  test("a map with the same epoch brings other leaders and no other owners", () => {
    const routes = routesOf(mapOf(3n, [1, 0, 2_048], [2, 2_048, 2_048]));
    const moved = mapOf(3n, [1, 0, 2_048], [2, 2_048, 2_048]);
    for (const route of moved.groups) route.leader = "another:1";
    assert.equal(routes.learn(moved), false);
    assert.equal(routes.leaderOf(2), "another:1");
    routes.learn(mapOf(3n, [1, 0, 1], [2, 1, 4_095]));
    assert.equal(routes.leaderOf(2), "another:1");
  });

  test("a map that does not give each slot to exactly one group is ignored", () => {
    const wrong: Run[][] = [
      [],
      [[1, 0, 4_095]],
      [[0, 0, 4_096]],
      [[65, 0, 4_096]],
      [
        [2, 0, 4_096],
        [1, 0, 0],
      ],
      [
        [1, 0, 4_096],
        [2, 7, 1],
      ],
      [[1, 0, 4_097]],
      [[1, 4_294_967_295, 2]],
      [
        [1, 0, 4_096],
        [1, 9, 0],
      ],
    ];
    const routes = routesOf(mapOf(1n, ...THREE));
    for (const runs of wrong) {
      assert.equal(routes.learn(mapOf(9n, ...runs)), false, JSON.stringify(runs));
      assert.deepEqual([routes.epoch, routes.groupOf(acquire("a"))], [1n, 7]);
    }
    assert.equal(routes.learn(mapOf(9n, [64, 0, SLOTS])), true);
    assert.equal(routes.groupOf(acquire("a")), 64);
  });
});

describe("a request that a group refused", () => {
  const next = (redirects: Redirects, error: WrongGroup, asked: number, owner: number, epoch = 3n) =>
    redirects.next(error, asked, owner, epoch);

  test("goes to the group that has the lock, or waits for a newer map, or asks again after a pause", () => {
    const redirects = new Redirects(() => 0.5);
    assert.equal(next(redirects, refusal(3n), 1, 2), 0n);
    assert.equal(next(redirects, refusal(4n), 2, 2), 2_000n * MS);
    const pause = next(redirects, refusal(2n), 2, 2) ?? 0n;
    assert.ok(pause > 0n && pause < 500n * MS);
  });

  test("is not sent elsewhere if it may have been carried out", () => {
    assert.equal(next(new Redirects(Math.random), refusal(3n, true), 1, 2), undefined);
  });

  test("is not sent for ever", () => {
    const redirects = new Redirects(() => 0.5);
    let tries = 0;
    while (next(redirects, refusal(0n), 1, 1) !== undefined) tries += 1;
    assert.equal(tries, 8);
  });

  test("is told as an error with the map's epoch", () => {
    const player = new Player().acquire("g", "a").welcome();
    player.fail(player.sent("acquire").requestId, Reason.WRONG_GROUP, { mapEpoch: 5n });
    const error = player.completed.get("g");
    assert.ok(error instanceof WrongGroup && error.retryable);
    assert.deepEqual([error.mapEpoch, error.mayHaveHappened], [5n, false]);
    player.acquire("all", "b");
    player.fail(player.sent("acquire").requestId, Reason.SEVERAL_GROUPS);
    assert.ok(player.completed.get("all") instanceof SeveralGroups);
  });

  test("can be refused by the metadata of a call, too", () => {
    const metadata = new Metadata();
    const told = { reason: "wrong_group", "map-epoch": "7", group: "3", leader: "c:3" };
    for (const [key, value] of Object.entries(told)) metadata.set(`holdfast-${key}`, value);
    const error = { code: status.FAILED_PRECONDITION, details: "elsewhere", message: "", metadata } as ServiceError;
    const failure = failureOf(error);
    assert.deepEqual([failure.mapEpoch, failure.group, failure.leader], [7n, 3, "c:3"]);
    metadata.set("holdfast-map-epoch", "-1");
    assert.equal(failureOf(error).mapEpoch, 0n);
  });
});

describe("a session", () => {
  const map = mapOf(1n, ...THREE);

  test("names its group in each hello, and the root group in none", () => {
    const sent = (group: number) => {
      const player = new Player(group).acquire("g", "a");
      assert.ok(player.session.handleConnected(player.now));
      const open = player.sent("open");
      player.answer(open.requestId, { case: "open", value: { ttlMs: 30_000n, lingerMs: 30_000n } });
      player.breaks().untilConnecting();
      assert.ok(player.session.handleConnected(player.now));
      return [open.group, player.settle().sent("resume").group];
    };
    assert.deepEqual(sent(ROOT), [0, 0]);
    assert.deepEqual(sent(3), [3, 3]);
  });

  test("passes on the map of each welcome", () => {
    const player = new Player().acquire("g", "a").welcome({ map });
    assert.deepEqual(player.maps, [map]);
    player.breaks().reconnects();
    assert.equal(player.maps.length, 1);
  });

  test("fetches a map with a fresh hello to its node, once a second at most, and keeps its locks", () => {
    const player = holding();
    player.session.handleMapWanted(player.now);
    player.session.handleMapWanted(player.now);
    assert.deepEqual(player.timePasses().connects, ["a:1", "a:1"]);
    // The old stream serves until the new one exists.
    player.acquire("other", "b");
    const { requestId } = player.sent("acquire");
    const fetchedAt = player.now;
    player.welcome({ map });
    assert.deepEqual([player.farewells, player.maps], [[true], [map]]);
    assert.equal(player.sent("acquire").requestId, requestId);
    player.hold().check(player.now);
    player.session.handleMapWanted(player.now);
    player.untilConnecting();
    assert.equal(player.now, fetchedAt + SECOND);
  });

  test("fetches no map while a welcome comes anyway, and none when it closes", () => {
    const broken = holding().breaks();
    broken.session.handleMapWanted(broken.now);
    assert.equal(broken.reconnects().connects.length, 2);
    assert.equal(broken.session.nextTimeout(), broken.now + 10n * SECOND);
    const closing = holding().close("close");
    closing.session.handleMapWanted(closing.now);
    closing.timePasses();
    assert.equal(closing.connects.length, 1);
  });

  test("stays where it is if its node does not take the fresh stream", () => {
    const player = holding();
    player.session.handleMapWanted(player.now);
    player.timePasses().session.handleConnectFailed(player.now, "no route", "not_made");
    assert.deepEqual(player.settle().farewells, []);
    assert.equal(player.acquire("other", "b").sent("acquire").name, "b");
  });

  test("ignores the leader of another group", () => {
    for (const [group, expected] of [
      [0, "c:3"],
      [2, "c:3"],
      [1, "b:2"],
    ] as const) {
      const player = new Player(2).acquire("g", "a").welcome();
      const told = { retryable: true, leader: "c:3", group };
      player.fail(player.sent("acquire").requestId, Reason.NOT_LEADER, told).untilConnecting();
      assert.equal(player.connects.at(-1), expected, `the leader of group ${group}`);
      const refused = new Player(2).acquire("g", "a");
      assert.ok(refused.session.handleConnected(refused.now));
      refused.fail(refused.sent("open").requestId, Reason.NOT_LEADER, told).untilConnecting();
      assert.equal(refused.connects.at(-1), expected, `the leader of group ${group}`);
    }
  });
});

test("groups share the newest session id, and no group sees one again", () => {
  let drawn = 0;
  const ids = new SessionIds(() => `id ${++drawn}`);
  const [one, other] = [ids.ofOneGroup(), ids.ofOneGroup()];
  assert.deepEqual([one(), other()], ["id 1", "id 1"]);
  // Both lose their sessions, one of them twice.
  assert.deepEqual([one(), one(), other(), ids.ofOneGroup()()], ["id 2", "id 3", "id 3", "id 3"]);
});

test("a session in another group knows the same nodes, and begins at its leader", () => {
  const nodes = new Endpoints("a:1");
  nodes.learn(["a:1", "b:2"]);
  const endpoints = nodes.ofOtherGroup("b:2");
  assert.deepEqual([endpoints.nextAddress(), endpoints.addresses], ["b:2", ["a:1", "b:2"]]);
  assert.equal(nodes.ofOtherGroup("").nextAddress(), "a:1");
  assert.equal(new Endpoints("a:1", false).ofOtherGroup("b:2").nextAddress(), "a:1");
});
