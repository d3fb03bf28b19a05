/** The library against a cluster of three nodes and four groups. */

import assert from "node:assert/strict";
import { after, before, describe, type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { slotOf } from "#dist/core/slots.js";
import {
  Cancelled,
  Client,
  type ClientOptions,
  type Guard,
  type LogRecord,
  type Observed,
  SeveralGroups,
  TimedOut,
  type Watched,
} from "#dist/index.js";
import { needsHoldfast, Server } from "./server.js";

const GROUPS = [1, 2, 3, 4] as const;

let server: Server;

function clientOf(context: TestContext, options: ClientOptions = {}): Client {
  const client = new Client(server.endpoint, options);
  context.after(() => client.close());
  return client;
}

/** A name with this prefix in each group. The shares of the groups are equal runs of slots. */
function namesIn(prefix: string): string[] {
  return GROUPS.map((group) => {
    for (let number = 0; ; number++) {
      const name = `${prefix}${number}`;
      if (1 + Math.floor((slotOf(name) * GROUPS.length) / 4_096) === group) return name;
    }
  });
}

const nameIn = (group: number, prefix: string) => namesIn(prefix)[group - 1] ?? "";

async function status(name: string): Promise<{ group: number; holders: { session: string }[] }> {
  return JSON.parse(await server.command("status", name, "--output", "json"));
}

async function leaderOf(group: number): Promise<number> {
  const shown = JSON.parse(await server.command("cluster", "status", "--output", "json"));
  return shown.groups.find((it: { group: number }) => it.group === group).leader;
}

/** Hands the leadership of the group to another node. */
async function moveLeader(group: number): Promise<void> {
  const to = ((await leaderOf(group)) % 3) + 1;
  await server.command("cluster", "transfer", "--group", `${group}`, "--to", `${to}`);
  // The node that is asked may learn of it a little later.
  while ((await leaderOf(group)) !== to) await sleep(5);
}

async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await sleep(5);
}

async function sessionsOf(client: Client, names: string[]): Promise<Set<string>> {
  const told = await Promise.all(names.map((name) => client.status(name)));
  return new Set(told.flatMap(({ holders }) => holders.map((holder) => holder.session)));
}

describe("with four groups", needsHoldfast, () => {
  before(async () => {
    server = await Server.start({ nodes: 3, groups: GROUPS.length });
  });
  after(() => server?.stop());

  test("a client holds locks in all groups, under one id, and its close frees all of them", async (t) => {
    const records: LogRecord[] = [];
    const hf = new Client(server.endpoint, { log: (record) => records.push(record) });
    const names = namesIn("all/");
    assert.deepEqual(await Promise.all(names.map(async (name) => (await status(name)).group)), GROUPS);
    const guards: Guard[] = [];
    for (const name of names) guards.push(await hf.lock(name));
    assert.ok(guards.every((guard) => guard.isHeld && guard.token > 0n));
    assert.equal((await sessionsOf(hf, names)).size, 1);
    const opened = records.filter((record) => record.event === "session_opened");
    assert.deepEqual(
      opened.map((record) => record.group),
      [undefined, 2, 3, 4],
    );
    await (guards[2] as Guard).release();
    await using again = await hf.lock(names[2] ?? "");
    assert.ok(again.token > 0n && !(guards[2] as Guard).isHeld);
    const losses = [0, 1, 3].map((place) => (guards[place] as Guard).untilLost());
    await again.release();
    await hf.close();
    assert.deepEqual(await Promise.all(losses), ["session_closed", "session_closed", "session_closed"]);
    assert.equal((await sessionsOf(clientOf(t), names)).size, 0);
  });

  test("the first lock of a client is in whichever group has it", async (t) => {
    for (const name of namesIn("first/")) await (await clientOf(t).lock(name)).release();
  });

  test("a read opens no session in the group of the lock", async (t) => {
    const records: LogRecord[] = [];
    const hf = clientOf(t, { log: (record) => records.push(record) });
    const name = nameIn(3, "read/");
    await using guard = await clientOf(t).lock(name);
    assert.equal((await hf.status(name)).holderCount, 1);
    assert.ok(guard.isHeld);
    await hf.connect();
    assert.equal((await hf.status(name)).holderCount, 1);
    assert.deepEqual([...new Set(records.map((record) => record.group))], [undefined]);
  });

  test("a wait in a group times out, and is granted when the holder releases", async (t) => {
    const [hf, rival] = [clientOf(t), clientOf(t)];
    const name = nameIn(2, "waits/");
    const guard = await hf.lock(name);
    await assert.rejects(rival.lock(name, { waitMs: 50 }), TimedOut);
    const position = await new Promise<number>((onQueued) => {
      void rival.lock(name, { waitMs: 30_000, onQueued }).then((granted) => granted.release());
    });
    assert.equal(position, 1);
    await guard.release();
    await using next = await hf.lock(name, { waitMs: 30_000 });
    assert.ok(next.token > 0n);
  });

  test("an aborted wait in a group leaves no waiter behind", async (t) => {
    const hf = clientOf(t);
    const name = nameIn(4, "aborted/");
    await using guard = await hf.lock(name);
    const controller = new AbortController();
    const onQueued = () => controller.abort();
    await assert.rejects(hf.lock(name, { waitMs: 30_000, signal: controller.signal, onQueued }), Cancelled);
    while ((await hf.status(name)).waiterCount > 0) await sleep(5);
    assert.ok(guard.isHeld);
  });

  test("several locks are taken at once if their names have one tag", async (t) => {
    const hf = await clientOf(t).connect();
    const tag = nameIn(3, "tag-");
    await using both = await hf.lockAll([`{${tag}}/header`, `{${tag}}/lines`]);
    assert.equal(both.tokens.length, 2);
    const names = namesIn("together/");
    await assert.rejects(hf.lockAll(names), SeveralGroups);
    assert.equal((await sessionsOf(hf, names)).size, 0);
    // Before the client knows the map, a node refuses it.
    await assert.rejects(clientOf(t).lockAll(names), SeveralGroups);
  });

  test("a loss in one group is told to the guards of that lock only", async (t) => {
    const hf = clientOf(t);
    const [first = "", , third = ""] = namesIn("broken/");
    const [kept, lost] = [await hf.lock(first), await hf.lock(third)];
    const { signal } = kept;
    const told = lost.untilLost();
    await server.command("break", third, "--reason", "a test");
    assert.equal(await told, "broken");
    assert.ok(kept.isHeld && !signal.aborted && !lost.isHeld);
    await kept.release();
  });

  test("a killed session is lost in all groups, and the next one has one id in all of them", async (t) => {
    const hf = clientOf(t);
    const names = namesIn("killed/");
    const guards = await Promise.all(names.map((name) => hf.lock(name)));
    const losses = Promise.all(guards.map((guard) => guard.untilLost()));
    const [session = ""] = await sessionsOf(hf, names);
    await server.command("kill-session", session, "--reason", "a test");
    assert.deepEqual([...new Set(await losses)], ["session_killed"]);
    const again = await Promise.all(names.map((name) => hf.lock(name, { waitMs: 10_000 })));
    const sessions = await sessionsOf(hf, names);
    assert.ok(sessions.size === 1 && !sessions.has(session));
    await Promise.all(again.map((guard) => guard.release()));
  });

  test("the efficiency tier is in the root group, whatever the name", async (t) => {
    const records: LogRecord[] = [];
    const hf = clientOf(t, { log: (record) => records.push(record) });
    const name = nameIn(3, "fast/");
    await using guard = await hf.lock(name, { tier: "efficiency" });
    assert.ok(guard.isBestEffort && guard.fence.startsWith("hf1.B."));
    assert.deepEqual([...new Set(records.map((record) => record.group))], [undefined]);
  });

  test("an election in another group shows its leader", async (t) => {
    const election = clientOf(t).election(nameIn(2, "election/"));
    const observed = election.observe();
    const seen: Observed[] = [(await observed.next()).value];
    {
      await using leadership = await election.lead({ value: "worker-7" });
      assert.equal((await election.leader())?.epoch, leadership.epoch);
      seen.push((await observed.next()).value);
    }
    seen.push((await observed.next()).value);
    await observed.return(undefined as never);
    assert.deepEqual(
      seen.map((it) => it.type),
      ["vacant", "leader", "vacant"],
    );
  });

  test("locks, waits and watches go on when the leadership of their group moves", async (t) => {
    const [hf, rival] = [clientOf(t), clientOf(t)];
    const names = namesIn("moves/");
    const guards = await Promise.all(names.map((name) => hf.lock(name)));
    const tokens = guards.map((guard) => guard.token);
    let queued = 0;
    const waiting = rival.lock(names[2] ?? "", { waitMs: 60_000, onQueued: () => (queued += 1) });
    await until(() => queued > 0);
    const controller = new AbortController();
    const seen: Watched[] = [];
    const watching = (async () => {
      for await (const it of hf.watch("moves/", { signal: controller.signal })) seen.push(it);
    })();
    await until(() => seen.some((it) => it.type === "snapshot_complete"));
    for (let round = 0; round < 3; round++) {
      await moveLeader(3);
      assert.deepEqual(
        guards.map((guard) => guard.token),
        tokens,
      );
      for (const name of namesIn(`moves/${round}/`)) await (await hf.lock(name, { waitMs: 10_000 })).release();
    }
    await (guards[2] as Guard).release();
    await (await waiting).release();
    const releasedOf = (name: string) =>
      seen.filter((it) => it.type === "event" && it.event.kind === "released" && it.event.names.includes(name)).length;
    await until(() => releasedOf(names[2] ?? "") === 2);
    const all = [0, 1, 2].flatMap((round) => namesIn(`moves/${round}/`));
    await until(() => all.every((name) => releasedOf(name) > 0));
    controller.abort();
    await assert.rejects(watching, Cancelled);
    assert.deepEqual(
      all.map((name) => releasedOf(name)),
      all.map(() => 1),
    );
    assert.ok(!seen.some((it) => it.type === "restarted"));
    assert.ok(guards.every((guard, place) => guard.isHeld === (place !== 2)));
    await hf.close();
  });
});
