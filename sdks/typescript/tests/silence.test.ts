/** Connections that stand, and on which nothing comes. */

import assert from "node:assert/strict";
import { connect, createServer, type Socket } from "node:net";
import { after, before, describe, type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, type Guard, type LogRecord } from "#dist/index.js";
import { needsHoldfast, Server } from "./server.js";

let server: Server;

/** Passes bytes on between a client and the node, until it is cut: then its connections stand, and nothing comes. */
class Wire {
  private readonly sockets: Socket[] = [];
  private readonly listener = createServer((client) => {
    const node = connect(Number(server.endpoint.split(":")[1]), "127.0.0.1");
    this.sockets.push(client, node);
    for (const socket of [client, node]) socket.on("error", () => undefined).on("close", () => socket.destroy());
    client.pipe(node).pipe(client);
  });

  async listen(context: TestContext): Promise<string> {
    await new Promise<void>((listening) => this.listener.listen(0, "127.0.0.1", listening));
    context.after(() => {
      for (const socket of this.sockets) socket.destroy();
      this.listener.close();
    });
    return `127.0.0.1:${(this.listener.address() as { port: number }).port}`;
  }

  cut(): void {
    for (const socket of this.sockets) socket.unpipe().pause();
  }
}

describe("with a node", needsHoldfast, () => {
  before(async () => {
    server = await Server.start();
  });
  after(() => server?.stop());

  test("a wait leaves a node that has fallen silent, and keeps its place in the queue", async (t) => {
    const [first, second, records] = [new Wire(), new Wire(), [] as LogRecord[]];
    const endpoints = [await first.listen(t), await second.listen(t)];
    const log = (record: LogRecord) => records.push(record);
    await using holder = new Client(server.endpoint);
    await using waiter = new Client(endpoints, { discover: false, log });
    const guard = await holder.lock("silent");
    let granted: Promise<Guard> | undefined;
    await new Promise((onQueued) => {
      granted = waiter.lock("silent", { waitMs: 60_000, onQueued });
    });
    // An answer that is owed for longer than a ping takes is no silence.
    await sleep(4_500);
    assert.deepEqual(
      records.map((record) => record.event),
      ["connected", "session_opened"],
    );
    first.cut();
    const cutAt = Date.now();
    while (!records.some((record) => record.error?.includes("silent"))) await sleep(20);
    assert.ok(Date.now() - cutAt < 10_000);
    await guard.release();
    await (await granted)?.release();
    const { waiterCount, holderCount } = await holder.status("silent");
    assert.deepEqual([waiterCount, holderCount], [0, 0]);
  });
});
