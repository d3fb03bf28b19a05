/** Late writes are refused by real servers. Without one of them its tests are skipped, and in CI they fail. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { chmodSync, chownSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { Redis } from "ioredis";
import pg from "pg";
import { admit, HighWaterMark } from "#dist/fence.js";
import { Client, FenceRefused, Lost } from "#dist/index.js";
import { fencedTransaction, fencePostgres, MIGRATION, migrate } from "#dist/postgres.js";
import { FencedKey, SCRIPT } from "#dist/redis.js";
import {
  find,
  freePort,
  needsHoldfast,
  ROOT,
  Server,
  startProgram,
  stopProgram,
  temporaryDirectory,
} from "./server.js";

function fence(name: string, token: number): string {
  return `hf1.L.${createHash("sha256").update(name).digest("hex").slice(0, 16)}.${token}`;
}

const isStale = (highest: bigint) => (error: unknown) =>
  error instanceof FenceRefused && error.kind === "stale" && error.highest === highest;

test("the files are those of the fence crate", () => {
  assert.equal(readFileSync(new URL("crates/fence/sql/postgres.sql", ROOT), "utf8"), MIGRATION);
  assert.equal(readFileSync(new URL("crates/fence/src/redis/write.lua", ROOT), "utf8"), SCRIPT);
});

test("a mark never goes back", () => {
  const mark = new HighWaterMark();
  mark.raiseTo(admit(fence("a", 5), "a"));
  mark.raiseTo(admit(fence("a", 5), "a"));
  assert.throws(() => mark.raiseTo(admit(fence("a", 4), "a")), isStale(5n));
  assert.equal(mark.token, 5n);
});

test("keys in Redis keep their hash slot", () => {
  assert.equal(new FencedKey("order:42").mark, "holdfast:mark:{order:42}");
  assert.equal(new FencedKey("{wallet:42}:cents").mark, "holdfast:mark:{wallet:42}:cents");
  for (const wrong of ["a{}b", "a}b", "a{b", "{}{b}"]) assert.throws(() => new FencedKey(wrong), /hash tag/);
});

/** PostgreSQL refuses to run as root. */
function account(): { uid?: number; gid?: number } {
  if (process.getuid?.() !== 0) return {};
  const entries = readFileSync("/etc/passwd", "utf8")
    .split("\n")
    .map((line) => line.split(":"));
  const entry = entries.find(([name]) => name === "postgres") ?? entries.find(([name]) => name === "nobody");
  return { uid: Number(entry?.[2]), gid: Number(entry?.[3]) };
}

const [initdb = "", postgres = "", redisServer = ""] = ["initdb", "postgres", "redis-server"].map(find);

async function startPostgres(t: TestContext): Promise<pg.Pool> {
  const [directory, port, owner] = [temporaryDirectory(), await freePort(), account()];
  if (owner.uid !== undefined && owner.gid !== undefined) {
    chmodSync(directory, 0o711);
    chownSync(directory, owner.uid, owner.gid);
  }
  const data = join(directory, "data");
  const init = ["-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", "-D", data];
  execFileSync(initdb, init, { ...owner, cwd: "/", stdio: "ignore" });
  const settings = ["fsync=off", "listen_addresses=127.0.0.1", "unix_socket_directories="].flatMap((it) => ["-c", it]);
  const args = ["-p", `${port}`, "-D", data, ...settings];
  const server = await startProgram(postgres, args, /ready to accept connections/, { ...owner, cwd: "/" });
  const pool = new pg.Pool({ host: "127.0.0.1", port, user: "postgres", database: "postgres" });
  t.after(async () => {
    await pool.end();
    await stopProgram(server);
    rmSync(directory, { recursive: true, force: true });
  });
  return pool;
}

describe("PostgreSQL", { skip: postgres === "" && "PostgreSQL is not installed" }, () => {
  test("node-postgres refuses a late write", async (t) => {
    const pool = await startPostgres(t);
    await migrate(await pool.connect().then((client) => Object.assign(client, { released: client.release() })));
    const write = (text: string, resource = "pg") => fencedTransaction(pool, text, async () => "written", { resource });
    assert.equal(await write(fence("pg", 9)), "written");
    await assert.rejects(write(fence("pg", 8)), isStale(9n));
    for (const [wrong, kind] of [
      [fence("other", 9), "other_resource"],
      ["9", "malformed"],
      ["", "not_fenceable"],
    ] as const) {
      await assert.rejects(write(wrong), (error) => error instanceof FenceRefused && error.kind === kind);
    }
    await assert.rejects(
      fencedTransaction(pool, fence("pg", 9), (client) => client.query("SELECT * FROM nothing"), { resource: "pg" }),
      /nothing/,
    );
    await assert.rejects(fencePostgres(pool, fence("pg", 9)), /give resource/);

    await t.test("a paused holder cannot write after the next one", needsHoldfast, async (t) => {
      const server = await Server.start();
      const [first, second] = [new Client(server.endpoint), new Client(server.endpoint)];
      t.after(async () => {
        await Promise.all([first.close(), second.close()]);
        await server.stop();
      });
      await pool.query("CREATE TABLE wallets (id int PRIMARY KEY, cents int)");
      await pool.query("INSERT INTO wallets VALUES (42, 100)");
      const guard = await first.lock("wallet:42");
      // It reads its token, stands still, loses the lock, and writes late.
      const late = guard.fence;
      server.commandSync("break", "wallet:42", "--reason", "a test");
      {
        await using next = await second.lock("wallet:42", { waitMs: 10_000 });
        await fencedTransaction(pool, next, (client) =>
          client.query("UPDATE wallets SET cents = cents - 1 WHERE id = 42"),
        );
      }
      const write = (client: pg.PoolClient) => client.query("UPDATE wallets SET cents = 1000 WHERE id = 42");
      await assert.rejects(fencedTransaction(pool, late, write, { resource: "wallet:42" }), FenceRefused);
      await guard.untilLost();
      await assert.rejects(fencedTransaction(pool, guard, write), Lost);
      const { rows } = await pool.query("SELECT cents FROM wallets WHERE id = 42");
      assert.deepEqual(rows, [{ cents: 99 }]);
    });
  });
});

test("ioredis refuses a late write", { skip: redisServer === "" && "Redis is not installed" }, async (t) => {
  const [directory, port] = [temporaryDirectory(), await freePort()];
  const args = ["--port", `${port}`, "--save", "", "--dir", directory];
  const server = await startProgram(redisServer, args, /[Rr]eady to accept connections/);
  const redis = new Redis({ host: "127.0.0.1", port });
  t.after(async () => {
    redis.disconnect();
    await stopProgram(server);
    rmSync(directory, { recursive: true, force: true });
  });
  const key = new FencedKey("order:42");
  // The first call brings the script, the second knows it.
  assert.equal(await key.run(redis, fence("order:42", 9), "SET", key.data, "paid"), "OK");
  assert.equal(await key.run(redis, fence("order:42", 9), "GET", key.data), "paid");
  await assert.rejects(key.run(redis, fence("order:42", 8), "SET", key.data, "late"), isStale(9n));
  assert.equal(await redis.get("order:42"), "paid");
  await assert.rejects(key.run(redis, fence("order:43", 10), "SET", key.data, "wrong"), /another resource/);
});
