/** The library against a real node. */

import assert from "node:assert/strict";
import { createServer, type Socket } from "node:net";
import { after, before, describe, type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import {
  Busy,
  Cancelled,
  Client,
  type ClientOptions,
  Closed,
  Deadlock,
  InvalidEndpoints,
  type LogRecord,
  Lost,
  type Observed,
  Rejected,
  runAsActor,
  TimedOut,
  Unavailable,
  type Watched,
} from "#dist/index.js";
import { needsHoldfast, Server } from "./server.js";

let server: Server;

/** A client of the node that is closed after the test. */
function clientOf(context: TestContext, options: ClientOptions = {}): Client {
  const client = new Client(server.endpoint, options);
  context.after(() => client.close());
  return client;
}

async function breakLock(name: string): Promise<void> {
  await server.command("break", name, "--reason", "a test");
}

/** Blocks the event loop. */
function block(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

describe("with a node", needsHoldfast, () => {
  before(async () => {
    server = await Server.start();
  });
  after(() => server?.stop());

  test("a lock is held within its block and free behind it", async (t) => {
    const [hf, other] = [clientOf(t), clientOf(t)];
    let first = 0n;
    {
      await using guard = await hf.lock("order:42", { waitMs: 10_000 });
      first = guard.token;
      assert.equal(typeof first, "bigint");
      assert.ok(guard.fence.endsWith(`.${first}`) && guard.isHeld && guard.mode === "exclusive");
      assert.ok(guard.validForMs > 25_000 && guard.validForMs < 30_000 && !guard.isAtRisk);
      await assert.rejects(other.lock("order:42"), Busy);
      await assert.rejects(other.lock("order:42", { waitMs: 50 }), TimedOut);
    }
    await using later = await other.lock("order:42");
    assert.ok(later.token > first);
  });

  test("a guard that was released gives no token, and releases once", async (t) => {
    const guard = await clientOf(t).lock("released");
    assert.equal(await guard.release(), "released");
    assert.equal(await guard.release(), "already_released");
    assert.throws(() => guard.token, /released/);
    assert.ok(!guard.signal.aborted);
  });

  test("calls of one client exclude each other", async (t) => {
    const hf = clientOf(t);
    let [inside, most] = [0, 0];
    const work = async () => {
      for (let round = 0; round < 10; round++) {
        await hf.using("tasks", { waitMs: 30_000 }, async () => {
          inside += 1;
          most = Math.max(most, inside);
          await sleep(1);
          inside -= 1;
        });
      }
    };
    await Promise.all([work(), work(), work(), work()]);
    assert.equal(most, 1);
  });

  test("a loss aborts the signal with its reason, and the end of the block throws Lost", async (t) => {
    const hf = clientOf(t);
    const block = async () => {
      await using guard = await hf.lock("broken");
      await breakLock("broken");
      assert.equal(await guard.untilLost(), "broken");
      assert.ok(guard.signal.aborted && guard.signal.reason instanceof Lost);
      assert.throws(() => guard.token, Lost);
    };
    await assert.rejects(block, (error) => error instanceof Lost && error.reason === "broken");
  });

  test("using aborts its routine's signal, and never hides the routine's own error", async (t) => {
    const hf = clientOf(t);
    const routine = async (signal: AbortSignal) => {
      await breakLock("using");
      await assert.rejects(sleep(10_000, undefined, { signal }));
      throw new RangeError("of the routine");
    };
    await assert.rejects(hf.using("using", 5_000, routine), RangeError);
    const calm = async (signal: AbortSignal) => {
      await breakLock("using");
      await assert.rejects(sleep(10_000, undefined, { signal }));
    };
    await assert.rejects(hf.using(["using"], 5_000, { waitMs: 1_000 }, calm), Lost);
    assert.equal(await hf.using(["x", "y"], async (_, guard) => guard.tokens.length), 2);
  });

  test("a blocked event loop loses the guard before its token can be used", async (t) => {
    const hf = clientOf(t, { ttlMs: 1_500 });
    const guard = await hf.lock("blocked");
    const { signal } = guard;
    block(1_600);
    assert.throws(
      () => guard.token,
      (error) => error instanceof Lost && error.reason === "expired",
    );
    assert.ok(guard.signal.aborted && signal.aborted);
  });

  test("the first request after a blocked event loop gets another session", async (t) => {
    const hf = clientOf(t, { ttlMs: 1_000 });
    const guard = await hf.lock("blocked-too");
    block(3_000);
    await using next = await hf.lock("blocked-too", { waitMs: 5_000 });
    assert.ok(next.isHeld && !guard.isHeld);
  });

  test("an idle session keeps its locks for longer than its TTL", async (t) => {
    const hf = clientOf(t, { ttlMs: 1_000 });
    await using guard = await hf.lock("kept");
    await sleep(2_500);
    assert.ok(guard.isHeld);
  });

  test("a session that ends takes its locks along, and the next request opens another", async (t) => {
    const records: LogRecord[] = [];
    const hf = clientOf(t, { log: (record) => records.push(record) });
    const guard = await hf.lock("ends");
    const [holder] = (await hf.status("ends")).holders;
    await server.command("kill-session", holder?.session ?? "", "--reason", "a test");
    assert.equal(await guard.untilLost(), "session_killed");
    await using again = await hf.lock("ends", { waitMs: 5_000 });
    assert.ok(again.isHeld && !guard.isHeld);
    const events = records.map((record) => record.event).filter((event) => event !== "connected");
    assert.deepEqual(events, ["session_opened", "session_lost", "session_opened"]);
  });

  test("a lock with its own TTL is renewed unless told otherwise", async (t) => {
    const hf = clientOf(t);
    await using guard = await hf.lock("renewed", { ttlMs: 600 });
    const ends = await hf.lock("ends-by-itself", { ttlMs: 600, autoRenew: false });
    assert.equal(await ends.untilLost(), "own_time_over");
    await sleep(600);
    assert.ok(guard.isHeld);
    await ends.release();
  });

  test("an aborted wait fails with Cancelled and leaves no waiter behind", async (t) => {
    const hf = clientOf(t);
    await using guard = await hf.lock("aborted");
    const controller = new AbortController();
    const reason = new Error("enough");
    const onQueued = () => controller.abort(reason);
    const waiting = hf.lock("aborted", { waitMs: 30_000, signal: controller.signal, onQueued });
    await assert.rejects(waiting, (error) => error instanceof Cancelled && error.cause === reason);
    while ((await hf.status("aborted")).waiterCount > 0) await sleep(5);
    assert.ok(guard.isHeld);
    await assert.rejects(hf.lock("aborted", { signal: controller.signal }), Cancelled);
  });

  test("an actor enters its own lock again, and two actors find their deadlock", async (t) => {
    const hf = clientOf(t);
    await runAsActor(async () => {
      await using outer = await hf.lock("entered", { reentrant: true });
      await using inner = await hf.lock("entered", { reentrant: true });
      assert.equal(inner.token, outer.token);
      await assert.rejects(hf.lock("entered", { actor: 999_999n }), Busy);
    });
    await assert.rejects(hf.lock("entered", { reentrant: true }), /needs an actor/);
    const take = (first: string, second: string, meet: () => Promise<void>) =>
      runAsActor(async () => {
        await using _ = await hf.lock(first);
        await meet();
        await using __ = await hf.lock(second, { waitMs: 10_000 });
      });
    let arrived = 0;
    const meet = async () => {
      arrived += 1;
      while (arrived < 2) await sleep(1);
    };
    const outcomes = await Promise.allSettled([take("d1", "d2", meet), take("d2", "d1", meet)]);
    const failed = outcomes.filter((it) => it.status === "rejected");
    assert.equal(failed.length, 1);
    assert.ok(failed[0]?.reason instanceof Deadlock && failed[0].reason.cycle.length === 2);
  });

  test("readers share a token, permits are counted, and a hold is converted", async (t) => {
    const hf = clientOf(t);
    await using one = await hf.lock("readers", { shared: true });
    {
      await using two = await hf.lock("readers", { shared: true });
      assert.equal(one.token, two.token);
      assert.deepEqual([one.mode], ["shared"]);
      await assert.rejects(one.convertToExclusive(), Busy);
    }
    const before = one.token;
    await one.convertToExclusive({ waitMs: 5_000 });
    assert.ok(one.token > before);
    assert.deepEqual([one.mode], ["exclusive"]);
    await using permit = await hf.lock("gpu", { permits: 1 });
    assert.ok(permit.fence === "" && permit.mode === "permit");
    await assert.rejects(hf.lock("gpu", { permits: 1 }), Busy);
  });

  test("several locks are held together, or none", async (t) => {
    const hf = clientOf(t);
    await using both = await hf.lockAll(["b", "a"]);
    assert.deepEqual(both.names, ["b", "a"]);
    assert.equal(both.tokens.length, 2);
    await assert.rejects(hf.lockAll(["c", "a"]), Busy);
    assert.equal((await hf.status("c")).holderCount, 0);
    await breakLock("a");
    assert.equal(await both.untilLost(), "broken");
    assert.throws(() => both.fences, Lost);
    await both.release();
  });

  test("an election shows its leader to observers", async (t) => {
    const election = clientOf(t).election("scheduler");
    assert.equal(await election.leader(), undefined);
    const seen: Observed[] = [];
    const observed = election.observe();
    const next = async () => {
      const { value } = await observed.next();
      seen.push(value);
    };
    await next();
    {
      await using leadership = await election.lead({ value: "worker-7" });
      assert.equal(leadership.epoch, leadership.token);
      assert.equal(Buffer.from((await election.leader())?.value ?? []).toString(), "worker-7");
      await next();
      await leadership.proclaim("worker-7 is busy");
      await next();
    }
    await next();
    await observed.return(undefined as never);
    const told = seen.map((it) => (it.type === "leader" ? Buffer.from(it.value).toString() : it.type));
    assert.deepEqual(told, ["vacant", "worker-7", "worker-7 is busy", "vacant"]);
  });

  test("a watch tells what is, then what happens, until it is aborted", async (t) => {
    const hf = clientOf(t);
    await using guard = await hf.lock("watched/a");
    const controller = new AbortController();
    const seen: Watched[] = [];
    const watching = (async () => {
      for await (const it of hf.watch("watched/", { signal: controller.signal })) {
        seen.push(it);
        // After a gap the release would never be told.
        if (it.type === "restarted") throw new Error(`the watch has a gap: ${it.why}`);
        if (it.type === "snapshot_complete") await guard.release();
        if (it.type === "event" && it.event.kind === "released") controller.abort();
      }
    })();
    await assert.rejects(watching, Cancelled);
    const told = seen.map((it) => (it.type === "event" ? it.event.kind : it.type === "lock" ? it.name : it.type));
    assert.deepEqual(told, ["watched/a", "snapshot_complete", "released"]);
  });

  test("a lock of the efficiency tier is best effort", async (t) => {
    await using guard = await clientOf(t).lock("fast", { tier: "efficiency" });
    assert.ok(guard.isBestEffort && guard.fence.startsWith("hf1.B."));
  });

  test("a client that is closed takes nothing more, and its guards are lost", async () => {
    const hf = new Client(server.endpoint);
    const guard = await hf.lock("closed");
    await hf.close();
    await hf.close();
    assert.throws(() => guard.token, Lost);
    await assert.rejects(hf.lock("closed"), Closed);
    await assert.rejects(hf.connect(), Closed);
  });

  test("a traceparent is asked for at each request", async (t) => {
    let asked = 0;
    const traceparent = () => {
      asked += 1;
      return "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    };
    await (await clientOf(t, { traceparent }).lock("traced")).release();
    assert.equal(asked, 1);
  });
});

test("a client without a cluster says so", async () => {
  const hf = new Client("127.0.0.1:1");
  await assert.rejects(
    hf.lock("a"),
    (error) => error instanceof Unavailable && /no node listens there/.test(error.message),
  );
  await hf.close();
});

test("a program that is no node is reported with its address", async () => {
  const taken: Socket[] = [];
  const listener = createServer((socket) => taken.push(socket));
  await new Promise<void>((listening) => listener.listen(0, "127.0.0.1", listening));
  const { port } = listener.address() as { port: number };
  const hf = new Client(`127.0.0.1:${port}`, { requestTimeoutMs: 3_000 });
  const failed = (error: unknown) => error instanceof Unavailable && error.message.includes(`127.0.0.1:${port}`);
  await assert.rejects(hf.lock("a"), failed);
  await hf.close();
  for (const socket of taken) socket.destroy();
  listener.close();
});

test("a credential that cannot be had is reported", async () => {
  const credential = () => {
    throw new Error("no token today");
  };
  const hf = new Client("127.0.0.1:1", { requestTimeoutMs: 1_000, credential });
  await assert.rejects(hf.lock("a"), /no token today/);
  await hf.close();
});

test("wrong names and options are told at once", async () => {
  const hf = new Client("127.0.0.1:1");
  for (const name of ["", "x".repeat(513), "a\nb"]) {
    await assert.rejects(hf.lock(name), (error) => error instanceof Rejected && error.reason === "invalid_name");
  }
  const wrong = [{ policy: "pray" }, { tier: "gold" }, { shared: true, permits: 3 }, { waitMs: -1 }, { ttlMs: NaN }];
  for (const options of wrong) await assert.rejects(hf.lock("a", options as object), TypeError);
  await assert.rejects(hf.lock("a", { metadata: "x".repeat(1_025) }), Rejected);
  assert.throws(() => new Client("localhost"), InvalidEndpoints);
  assert.throws(() => new Client("a:1", { lingerMs: 10 }), /linger/);
  await hf.close();
});

test("a function for the credential that never answers does not hold its caller", async () => {
  const hf = new Client("127.0.0.1:1", { requestTimeoutMs: 300, credential: () => new Promise(() => undefined) });
  await assert.rejects(hf.lock("a"), Unavailable);
  await hf.close();
});
