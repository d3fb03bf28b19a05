// What a lock costs one Node.js program: this library, etcd3 and redlock, in one run on one machine.
//
//     cd "$(mktemp -d)" && npm install CLONE/sdks/typescript etcd3@1 redlock@5.0.0-beta.2 ioredis@5
//     node CLONE/sdks/typescript/bench/compare.mjs CLONE/target/release/holdfast
//
// It starts three nodes of Holdfast, three of etcd (both write each operation to the disks of a majority), and one
// server of Redis, which keeps nothing. `etcd` and `redis-server` must be in PATH. One client takes and gives back a
// lock that no other client wants. The services take turns; the figures are the median of the turns.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { cpus, loadavg, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "holdfast";

const [binary = "holdfast", turnsMax = "7", operations = "400"] = process.argv.slice(2);
const directory = mkdtempSync(join(tmpdir(), "holdfast-compare-"));
const processes = [];

// The peers are installed where the program was started.
const peers = createRequire(join(process.cwd(), "package.json"));

async function freePorts(count) {
  const listeners = Array.from({ length: count }, () => createServer().listen(0, "127.0.0.1"));
  await Promise.all(listeners.map((it) => once(it, "listening")));
  const ports = listeners.map((it) => it.address().port);
  for (const it of listeners) it.close();
  return ports;
}

function start(name, program, ...args) {
  const log = openSync(join(directory, `${name}.log`), "w");
  processes.push(spawn(program, args, { cwd: directory, stdio: ["ignore", log, log] }));
}

async function startHoldfast() {
  const ports = await freePorts(6);
  const ids = [1, 2, 3];
  const nodes = ids.map(
    (id) => `[[nodes]]\nid = ${id}\nclient = "127.0.0.1:${ports[id - 1]}"\npeer = "127.0.0.1:${ports[id + 2]}"\n`,
  );
  for (const id of ids) {
    const file = join(directory, `node-${id}.toml`);
    const head = `cluster = "compare"\nnode = ${id}\ndata_dir = "${directory}/holdfast-${id}"\n`;
    writeFileSync(file, head + nodes.join(""));
    start(`holdfast-${id}`, resolve(binary), "server", "--config", file);
  }
  return ports.slice(0, 3).map((port) => `127.0.0.1:${port}`);
}

async function startEtcd(Etcd3) {
  const ports = await freePorts(6);
  const url = (port) => `http://127.0.0.1:${port}`;
  const members = [0, 1, 2].map((node) => `n${node}=${url(ports[node + 3])}`);
  for (const node of [0, 1, 2]) {
    const options = {
      name: `n${node}`,
      "data-dir": `${directory}/etcd-${node}`,
      "listen-client-urls": url(ports[node]),
      "advertise-client-urls": url(ports[node]),
      "listen-peer-urls": url(ports[node + 3]),
      "initial-advertise-peer-urls": url(ports[node + 3]),
      "initial-cluster": members.join(","),
    };
    start(`etcd-${node}`, "etcd", ...Object.entries(options).map(([key, value]) => `--${key}=${value}`));
  }
  // The node that leads: a client of it needs no forwarding.
  for (;;) {
    for (const port of ports.slice(0, 3)) {
      const client = new Etcd3({ hosts: url(port) });
      const status = await client.maintenance.status().catch(() => undefined);
      if (status !== undefined && status.leader !== "0" && status.leader === status.header.member_id) return client;
      client.close();
    }
    await sleep(200);
  }
}

async function startRedis(Redis) {
  const [port] = await freePorts(1);
  start("redis", "redis-server", "--port", `${port}`, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no");
  const redis = new Redis({ host: "127.0.0.1", port });
  redis.on("error", () => undefined);
  await redis.ping();
  return redis;
}

const median = (numbers) => [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)];

async function measure({ name, acquire, release }, count) {
  const [acquires, releases, both] = [[], [], []];
  for (let number = 0; number < count; number++) {
    const began = performance.now();
    const lock = await acquire(`compare/${name}`);
    const held = performance.now();
    await release(lock);
    const ended = performance.now();
    acquires.push(held - began);
    releases.push(ended - held);
    both.push(ended - began);
  }
  const p99 = both.sort((a, b) => a - b)[Math.floor(both.length * 0.99)];
  return [median(acquires), median(releases), median(both), p99];
}

try {
  const { Etcd3 } = peers("etcd3");
  const { Redis } = peers("ioredis");
  const Redlock = peers("redlock").default;
  const hf = await new Client(await startHoldfast(), { requestTimeoutMs: 60_000 }).connect();
  const etcd = await startEtcd(Etcd3);
  const redis = await startRedis(Redis);
  const redlock = new Redlock([redis], { retryCount: 0 });
  const services = [
    { name: "holdfast", acquire: (name) => hf.lock(name), release: (guard) => guard.release() },
    {
      name: "holdfast, efficiency tier",
      acquire: (name) => hf.lock(name, { tier: "efficiency" }),
      release: (guard) => guard.release(),
    },
    { name: "etcd3", acquire: (name) => etcd.lock(name).ttl(30).acquire(), release: (lock) => lock.release() },
    { name: "redlock", acquire: (name) => redlock.acquire([name], 30_000), release: (lock) => lock.release() },
  ];
  for (const service of services) await measure(service, 50);
  const turns = new Map(services.map(({ name }) => [name, []]));
  const loads = [];
  for (let turn = 0; turn < Number(turnsMax); turn++) {
    // Another one begins each time.
    const first = turn % services.length;
    for (const service of [...services.slice(first), ...services.slice(0, first)]) {
      turns.get(service.name).push(await measure(service, Number(operations)));
    }
    loads.push(loadavg()[0]);
  }
  const load = `${Math.min(...loads).toFixed(1)} to ${Math.max(...loads).toFixed(1)}`;
  console.log(`Node.js ${process.version}; ${cpus().length} cores, load of the machine (1 minute): ${load}`);
  console.log(`${turnsMax} turns of ${operations} operations; p50 and p99 in microseconds\n`);
  console.log("| client | acquire p50 | release p50 | both p50 | both p99 | both p50 / etcd's |");
  console.log("|---|---|---|---|---|---|");
  const middles = [...turns].map(([name, of]) => [name, [0, 1, 2, 3].map((at) => median(of.map((it) => it[at])))]);
  const [, , ofEtcd] = new Map(middles).get("etcd3");
  for (const [name, middle] of middles) {
    const shown = middle.map((it) => Math.round(it * 1_000).toLocaleString("en"));
    console.log(`| ${name} | ${shown.join(" | ")} | ${(middle[2] / ofEtcd).toFixed(2)} |`);
  }
  await hf.close();
} finally {
  for (const it of processes) it.kill("SIGKILL");
  rmSync(directory, { recursive: true, force: true });
}
process.exit(0);
