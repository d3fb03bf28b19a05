// What a lock costs one Node.js program: this library, etcd3 and redlock, in one run on one machine.
// `sdks/bench/run.sh` runs it, and says what it compares.

import { createRequire } from "node:module";
import { join } from "node:path";
import { Client } from "holdfast";

const { TURNS = "7", OPERATIONS = "400", HOLDFAST_ENDPOINTS, ETCD_ENDPOINT, REDIS_ADDRESS } = process.env;

// The peers are installed where the program was started.
const peers = createRequire(join(process.cwd(), "package.json"));

const median = (numbers) => [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)];

async function measure({ name, acquire, release }, count) {
  const [acquires, releases, both] = [[], [], []];
  for (let number = 0; number < count; number++) {
    const began = performance.now();
    const lock = await acquire(`compare/typescript/${name}`);
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

const { Etcd3 } = peers("etcd3");
const { Redis } = peers("ioredis");
const Redlock = peers("redlock").default;
const hf = await new Client(HOLDFAST_ENDPOINTS, { requestTimeoutMs: 60_000 }).connect();
const etcd = new Etcd3({ hosts: `http://${ETCD_ENDPOINT}` });
const redis = new Redis(`redis://${REDIS_ADDRESS}`);
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
for (let turn = 0; turn < Number(TURNS); turn++) {
  // Another one begins each time.
  const first = turn % services.length;
  for (const service of [...services.slice(first), ...services.slice(0, first)]) {
    turns.get(service.name).push(await measure(service, Number(OPERATIONS)));
  }
}
console.log(`Node.js ${process.version}; ${TURNS} turns of ${OPERATIONS} operations; p50 and p99 in microseconds\n`);
console.log("| client | acquire p50 | release p50 | both p50 | both p99 | both p50 / etcd's |");
console.log("|---|---|---|---|---|---|");
const middles = [...turns].map(([name, of]) => [name, [0, 1, 2, 3].map((at) => median(of.map((it) => it[at])))]);
const [, , ofEtcd] = new Map(middles).get("etcd3");
for (const [name, middle] of middles) {
  const shown = middle.map((it) => Math.round(it * 1_000));
  console.log(`| ${name} | ${shown.join(" | ")} | ${(middle[2] / ofEtcd).toFixed(2)} |`);
}
await hf.close();
etcd.close();
redis.disconnect();
