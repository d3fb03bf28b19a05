/** Users that an administrator limits or turns away, on a real node. */

import assert from "node:assert/strict";
import { readFileSync, renameSync, rmSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import {
  Client,
  type ClientOptions,
  type LogRecord,
  Lost,
  QuotaExceeded,
  Rejected,
  Unauthenticated,
} from "#dist/index.js";
import { needsHoldfast, Server } from "./server.js";

describe("with a node that demands credentials", needsHoldfast, () => {
  let node: Server;
  before(async () => {
    node = await Server.start({ isSecure: true });
  });
  after(() => node.stop());

  const client = (authFile: string, options: ClientOptions = {}) =>
    new Client(node.endpoint, { ca: node.file("certs/ca.pem"), authFile, ...options });

  /** The file with the token of a new user. */
  async function user(name: string): Promise<string> {
    const file = node.file(`${name}.token`);
    await node.command("access", "user", "create", `token:${name}`, "--role", "user", "--to", file);
    return file;
  }

  test("a caller that does not wait as long as a rate demands is told when to come back", async () => {
    const hf = client(await user("greedy"), { requestTimeoutMs: 1_000 });
    await (await hf.lock("g")).release();
    await node.command("access", "quota", "set", "token:greedy", "--rate", "1", "--burst", "1");
    const take = async () => {
      for (let round = 0; round < 20; round += 1) await (await hf.lock("g")).release();
    };
    await assert.rejects(take(), (error) => {
      assert.ok(error instanceof QuotaExceeded && error instanceof Rejected, `${error}`);
      assert.deepEqual([error.reason, error.retryable, error.mayHaveHappened], ["rate_limited", true, false]);
      assert.ok(error.retryAfterMs !== undefined && error.retryAfterMs > 0 && error.retryAfterMs <= 1_000);
      return true;
    });
    // A caller that waits longer gets the lock later.
    await (await hf.lock("g", { waitMs: 10_000 })).release();
    await hf.close();
  });

  test("a used-up quota is told at once", async () => {
    const hf = client(await user("hoarder"));
    await node.command("access", "quota", "set", "token:hoarder", "--locks", "1");
    const guard = await hf.lock("first");
    await assert.rejects(hf.lock("second", { waitMs: 60_000 }), (error) => {
      assert.ok(error instanceof QuotaExceeded, `${error}`);
      assert.deepEqual([error.reason, error.retryAfterMs], ["quota_exceeded", undefined]);
      return true;
    });
    assert.ok(guard.isHeld);
    await hf.close();
  });

  test("a client whose token is revoked loses its locks with its next heartbeat", async () => {
    const ttlMs = 6_000;
    const records: LogRecord[] = [];
    const file = await user("revoked");
    const hf = client(file, { ttlMs, log: (record) => records.push(record) });
    const guard = await hf.lock("revoked");
    const lost = guard.untilLost();
    await node.command("access", "token", "revoke", readFileSync(file, "utf8").split("_")[1] as string);
    let began = Date.now();
    assert.equal(await lost, "denied");
    // The lease alone would have told it after 98 % of the TTL.
    assert.ok(Date.now() - began < ttlMs * 0.9);
    began = Date.now();
    await assert.rejects(guard.release(), (error) => error instanceof Lost && error.reason === "denied");
    await assert.rejects(hf.lock("another"), Unauthenticated);
    await hf.close();
    assert.ok(Date.now() - began < 2_000);
    const told = records.find((record) => record.event === "session_lost");
    assert.match(told?.error ?? "", /may have been revoked/);
  });

  test("a client whose token has expired resumes with the one that its file has then", async () => {
    const file = await user("rotated");
    // The token lives for longer than a client needs to take a lock on this machine.
    const began = Date.now();
    const warm = client(file);
    await (await warm.lock("rotated")).release();
    await warm.close();
    const valid = 2_000 + 4 * (Date.now() - began);
    const short = node.file("short.token");
    await node.command("access", "token", "create", "token:rotated", "--to", short, "--expires", `${valid}ms`);
    const expires = Date.now() + valid;
    const hf = client(short);
    const guard = await hf.lock("rotated");
    const { token } = guard;
    rmSync(short);
    renameSync(file, short);
    // The node ends the stream then.
    const lost = await Promise.race([guard.untilLost(), sleep(expires + 200 - Date.now(), "held")]);
    assert.equal(lost, "held");
    await (await hf.lock("after", { waitMs: 5_000 })).release();
    assert.equal(guard.token, token);
    await hf.close();
  });
});
