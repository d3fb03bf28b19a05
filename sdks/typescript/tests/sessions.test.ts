/**
 * A client of a cluster with several groups: its sessions, seen from the other end.
 *
 * The slot of `orders` is 138, and that of `wallet` is 2814.
 */

import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { EndReason, Reason, ReleaseOutcome } from "#dist/gen/holdfast/v1/holdfast_pb.js";
import {
  Cancelled,
  Client,
  type ClientOptions,
  Closed,
  Lost,
  SeveralGroups,
  Unavailable,
  WrongGroup,
} from "#dist/index.js";
import { FakeNode, type FakeStream, type Welcome } from "./fake-node.js";

const WAIT = { waitMs: 60_000 };

/** The leaders of the root group and of group 2. */
class Cluster {
  private constructor(
    private readonly context: TestContext,
    readonly root: FakeNode,
    readonly second: FakeNode,
  ) {}

  static async start(context: TestContext): Promise<Cluster> {
    return new Cluster(context, await FakeNode.start(context), await FakeNode.start(context));
  }

  /** Group 2 has the slots from here on. */
  welcome(epoch: bigint, secondFrom: number): Welcome {
    const groups = [
      { group: 1, leader: this.root.address, slots: [{ first: 0, count: secondFrom }] },
      { group: 2, leader: this.second.address, slots: [{ first: secondFrom, count: 4_096 - secondFrom }] },
    ];
    return { ttlMs: 30_000n, lingerMs: 30_000n, map: { epoch, groups } };
  }

  client(options: ClientOptions = {}): Client {
    const client = new Client(this.root.address, options);
    this.context.after(() => client.close().catch(() => undefined));
    return client;
  }

  /** The client, its stream in the root group, and the id of its session there. */
  async connect(secondFrom: number, options: ClientOptions = {}) {
    const client = this.client(options);
    const connecting = client.connect();
    const { stream, hello, isResume } = await this.root.welcome(this.welcome(1n, secondFrom));
    assert.deepEqual([isResume, hello.group], [false, 0]);
    await connecting;
    return { client, root: stream, id: hello.sessionId };
  }

  /** The guards of `orders` and `wallet`, with the tokens 7 and 8, and the stream in group 2. */
  async holdBoth(client: Client, root: FakeStream) {
    const orders = await acquireOn(client, "orders", root, 7n);
    const acquiring = client.lock("wallet", WAIT);
    const { stream: second, hello } = await this.second.welcome(this.welcome(1n, 2_000));
    assert.equal(hello.group, 2);
    const { requestId } = await second.next("acquire");
    second.grant(requestId, "wallet", 8n);
    return { orders, wallet: await acquiring, second, secondId: hello.sessionId };
  }
}

async function acquireOn(client: Client, name: string, stream: FakeStream, token: bigint) {
  const acquiring = client.lock(name, WAIT);
  const request = await stream.next("acquire");
  assert.equal(request.name, name);
  stream.grant(request.requestId, name, token);
  return acquiring;
}

function refuse(stream: FakeStream, requestId: bigint, mapEpoch: bigint): void {
  stream.answer(requestId, { case: "failure", value: { reason: Reason.WRONG_GROUP, mapEpoch } });
}

async function closeAll(client: Client, ...streams: FakeStream[]): Promise<void> {
  const closing = client.close();
  for (const stream of streams) {
    const { requestId } = await stream.next("close");
    stream.answer(requestId, { case: "close", value: {} });
  }
  await closing;
}

test("a client has a session with one id in each group whose locks it uses, and closes all of them", async (t) => {
  const cluster = await Cluster.start(t);
  const { client, root, id } = await cluster.connect(2_000);
  const { orders, wallet, second, secondId } = await cluster.holdBoth(client, root);
  assert.equal(secondId, id);
  assert.deepEqual([orders.token, wallet.token], [7n, 8n]);
  // Each guard is released in the session that has the hold.
  const releasing = wallet.release();
  const release = await second.next("release");
  assert.equal(release.token, 8n);
  second.answer(release.requestId, { case: "release", value: { outcome: ReleaseOutcome.RELEASED } });
  assert.equal(await releasing, "released");
  const lost = orders.untilLost();
  await closeAll(client, root, second);
  assert.equal(await lost, "session_closed");
});

test("the end of a session in one group leaves the locks of others alone", async (t) => {
  const cluster = await Cluster.start(t);
  const { client, root, id } = await cluster.connect(2_000);
  const { orders, wallet, second } = await cluster.holdBoth(client, root);
  second.send({ notices: [{ kind: { case: "sessionEnded", value: { reason: EndReason.KILLED } } }] });
  assert.equal(await wallet.untilLost(), "session_killed");
  assert.ok(orders.isHeld && !orders.signal.aborted);
  // The next lock of that group is asked for in a new session there. Any node serves it.
  const acquiring = client.lock("wallet", WAIT);
  const { stream: again, hello } = await cluster.root.welcome(cluster.welcome(1n, 2_000));
  assert.equal(hello.group, 2);
  assert.notEqual(hello.sessionId, id);
  again.grant((await again.next("acquire")).requestId, "wallet", 9n);
  assert.equal((await acquiring).token, 9n);
  assert.equal(orders.token, 7n);
  await closeAll(client, root, again);
});

test("a refusal by a newer map is followed to the group that has the lock", async (t) => {
  const cluster = await Cluster.start(t);
  // By this map `wallet` is in the root group.
  const { client, root } = await cluster.connect(3_000);
  const acquiring = client.lock("wallet", WAIT);
  refuse(root, (await root.next("acquire")).requestId, 2n);
  // The newer map comes with a fresh welcome; the old stream ends with a farewell.
  const { stream: fresh, isResume } = await cluster.root.welcome(cluster.welcome(2n, 2_000));
  assert.ok(isResume);
  assert.deepEqual((await root.frame())?.operations, []);
  const { stream: second } = await cluster.second.welcome(cluster.welcome(2n, 2_000));
  const request = await second.next("acquire");
  assert.ok(request.name === "wallet" && request.waitMs > 50_000n && request.waitMs <= 60_000n);
  second.grant(request.requestId, "wallet", 8n);
  assert.equal((await acquiring).token, 8n);
  // What was refused is not asked for again in the root group.
  await acquireOn(client, "orders", fresh, 7n);
  await closeAll(client, fresh, second);
});

test("groups that never agree refuse the request to its caller", async (t) => {
  const cluster = await Cluster.start(t);
  const { client, root } = await cluster.connect(2_000);
  const acquiring = client.lock("orders", WAIT);
  let tries = 0;
  let isRefused = false;
  const refused = acquiring.catch((error) => {
    isRefused = true;
    return error;
  });
  while (!isRefused) {
    refuse(root, (await root.next("acquire")).requestId, 1n);
    tries += 1;
    if (tries === 9) break;
  }
  const error = await refused;
  assert.ok(error instanceof WrongGroup && error.retryable && !error.mayHaveHappened);
  assert.equal(tries, 9);
  await closeAll(client, root);
});

test("a request that may have been carried out is not sent to another group", async (t) => {
  const cluster = await Cluster.start(t);
  const { client, root } = await cluster.connect(3_000);
  const refused = assert.rejects(client.lock("wallet"), WrongGroup);
  const { requestId } = await root.next("acquire");
  const value = { reason: Reason.WRONG_GROUP, mapEpoch: 2n, mayHaveHappened: true };
  root.answer(requestId, { case: "failure", value });
  await refused;
  await closeAll(client, root);
  assert.ok(cluster.second.hasNoStream);
});

test("a caller that waits for a newer map can be aborted, and a client that closes waits for none", async (t) => {
  const cluster = await Cluster.start(t);
  const { client, root } = await cluster.connect(3_000);
  const controller = new AbortController();
  const aborted = assert.rejects(client.lock("wallet", { ...WAIT, signal: controller.signal }), Cancelled);
  refuse(root, (await root.next("acquire")).requestId, 2n);
  // The hello shows that the request waits; its answer never comes.
  const { stream: fresh, hello } = await cluster.root.greet();
  controller.abort();
  await aborted;
  assert.ok(hello.case === "resume");
  fresh.answer(hello.value.requestId, { case: "resume", value: cluster.welcome(1n, 3_000) });
  const closed = assert.rejects(client.lock("wallet", WAIT), Closed);
  refuse(fresh, (await fresh.next("acquire")).requestId, 2n);
  await closeAll(client, fresh);
  await closed;
});

test("a lockAll in several groups is refused before it is sent", async (t) => {
  const cluster = await Cluster.start(t);
  const { client, root } = await cluster.connect(2_000);
  await assert.rejects(
    client.lockAll(["orders", "wallet"]),
    (error) => error instanceof SeveralGroups && error.message.includes("{order}/orders and {order}/wallet"),
  );
  // Nothing of it is on the stream.
  await acquireOn(client, "orders", root, 7n);
  assert.ok(cluster.second.hasNoStream);
  await closeAll(client, root);
});

test("a client without a map works with the root group only, and says nothing of groups", async (t) => {
  const cluster = await Cluster.start(t);
  const client = cluster.client();
  const acquiring = client.lock("wallet", WAIT);
  const { stream: root, hello } = await cluster.root.welcome({ ttlMs: 30_000n, lingerMs: 30_000n });
  assert.equal(hello.group, 0);
  root.grant((await root.next("acquire")).requestId, "wallet", 8n);
  await acquiring;
  await closeAll(client, root);
  assert.ok(cluster.root.hasNoStream && cluster.second.hasNoStream);
});

test("a closed client opens no session in another group", async (t) => {
  const cluster = await Cluster.start(t);
  const { client, root } = await cluster.connect(2_000);
  await closeAll(client, root);
  await assert.rejects(client.lock("wallet"), Closed);
  await assert.rejects(client.status("wallet"), Closed);
  assert.ok(cluster.second.hasNoStream);
});

test("only calls for a group that no node serves fail at once, and the circuit of the client is open", async (t) => {
  const cluster = await Cluster.start(t);
  const groups = new Set<number | undefined>();
  const { client, root } = await cluster.connect(2_000, {
    log: ({ event, group }) => {
      if (event === "circuit") groups.add(group);
    },
  });
  const { orders, wallet, second } = await cluster.holdBoth(client, root);
  let isOver = false;
  const refuseAll = async (node: FakeNode) => {
    try {
      for (;;) {
        const { stream, hello } = await node.greet();
        assert.ok(hello.case === "resume");
        const value = { reason: Reason.NO_QUORUM, retryable: true };
        stream.answer(hello.value.requestId, { case: "failure", value });
      }
    } catch (error) {
      if (!isOver) throw error;
    }
  };
  void refuseAll(cluster.root);
  void refuseAll(cluster.second);
  second.send({ notices: [{ kind: { case: "leaderMoved", value: {} } }] });
  while (client.circuit !== "open") await sleep(10);
  await assert.rejects(client.lock("wallet", WAIT), (error) => error instanceof Unavailable && !error.mayHaveHappened);
  await acquireOn(client, "{orders}/2", root, 9n);
  assert.deepEqual([orders.isHeld, wallet.isHeld, [...groups]], [true, true, [2]]);
  isOver = true;
  const closing = client.close();
  const { requestId } = await root.next("close");
  root.answer(requestId, { case: "close", value: {} });
  // The session in group 2 ends by its TTL, and the program is told so.
  await assert.rejects(closing, Unavailable);
  assert.throws(() => wallet.token, Lost);
});

test("a client that knows no map opens the session in the root group before it asks", async (t) => {
  const cluster = await Cluster.start(t);
  const client = cluster.client();
  const acquiring = client.lock("wallet", { waitMs: 50 });
  const { stream: root, hello } = await cluster.root.greet();
  assert.ok(hello.case === "open");
  // The first answer of the cluster takes longer than the caller wants to wait for the lock.
  const early = await Promise.race([acquiring.then(String, String), sleep(100)]);
  assert.equal(early, undefined);
  root.answer(hello.value.requestId, { case: "open", value: cluster.welcome(1n, 2_000) });
  const { stream: second } = await cluster.second.welcome(cluster.welcome(1n, 2_000));
  const asked = await second.next("acquire");
  assert.deepEqual([asked.name, asked.waitMs], ["wallet", 50n]);
  second.grant(asked.requestId, "wallet", 8n);
  assert.equal((await acquiring).token, 8n);
  assert.ok(root.isSilent);
});

test("a caller that is aborted before there is a session asks for nothing", async (t) => {
  const cluster = await Cluster.start(t);
  const client = cluster.client();
  const controller = new AbortController();
  const acquiring = client.lock("orders", { ...WAIT, signal: controller.signal });
  const { stream: root, hello } = await cluster.root.greet();
  assert.ok(hello.case === "open");
  controller.abort();
  await assert.rejects(acquiring, Cancelled);
  root.answer(hello.value.requestId, { case: "open", value: cluster.welcome(1n, 2_000) });
  await client.connect();
  assert.ok(root.isSilent);
});
