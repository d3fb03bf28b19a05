/** TLS and credentials against a real node that demands both. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { createSecureServer } from "node:http2";
import { type AddressInfo, createConnection, createServer } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { MS } from "#dist/core/lease.js";
import { HandshakePatience } from "#dist/core/pacing.js";
import { Client, type ClientOptions, PermissionDenied, Unauthenticated, Unavailable } from "#dist/index.js";
import { BINARY, freePort, needsHoldfast, startProgram, stopProgram, temporaryDirectory } from "./server.js";

const directory = temporaryDirectory();
const file = (name: string) => join(directory, "certs", name);
const ca = file("ca.pem");
const own = { cert: file("client-billing.pem"), key: file("client-billing-key.pem") };
let endpoint: string;
let authFile: string;
let node: Awaited<ReturnType<typeof startProgram>> | undefined;

async function takes(options: ClientOptions, address = endpoint): Promise<void> {
  const hf = new Client(address, { requestTimeoutMs: 5_000, ...options });
  try {
    assert.equal(await (await hf.lock("a")).release(), "released");
  } finally {
    await hf.close();
  }
}

describe("with a node that demands TLS and credentials", needsHoldfast, () => {
  before(async () => {
    for (const args of ["ca --cluster test", "node --id 1 --host 127.0.0.1", "client billing"]) {
      execFileSync(BINARY, ["cert", ...args.split(" "), "--dir", join(directory, "certs")]);
    }
    const port = await freePort();
    endpoint = `127.0.0.1:${port}`;
    const configuration = `
      cluster = "test"
      node = 1
      data_dir = "${directory}/data"
      [tls]
      cert = "${file("node-1.pem")}"
      key = "${file("node-1-key.pem")}"
      client_ca = "${ca}"
      [auth]
      mode = "required"
      [[nodes]]
      id = 1
      client = "${endpoint}"
      peer = "127.0.0.1:${port + 1}"`;
    writeFileSync(join(directory, "node.toml"), configuration);
    node = await startProgram(BINARY, ["server", "--config", join(directory, "node.toml")], /serving clients/);
    authFile = join(directory, "data", "bootstrap");
  });
  after(async () => {
    if (node !== undefined) await stopProgram(node);
    rmSync(directory, { recursive: true, force: true });
  });

  test("a token opens a session, from a file, a text or a function", async () => {
    const token = readFileSync(authFile, "utf8");
    await takes({ ca, authFile });
    await takes({ ca, credential: token });
    await takes({ ca, credential: async () => token, verify: "host" });
    await takes({ ca, authFile, verify: "host" }, endpoint.replace("127.0.0.1", "[::ffff:127.0.0.1]")).then(
      () => assert.fail("the certificate is not for this host"),
      (error) => assert.ok(error instanceof Unauthenticated, `${error}`),
    );
  });

  test("a watch shows its credential, too", async () => {
    const hf = new Client(endpoint, { ca, authFile });
    for await (const it of hf.watch("")) if (it.type === "snapshot_complete") break;
    await hf.close();
    const anonymous = new Client(endpoint, { ca });
    await assert.rejects(anonymous.watch("").next(), Unauthenticated);
    await anonymous.close();
  });

  test("a certificate without a role is known and may do nothing", async () => {
    await assert.rejects(
      takes({ ca, ...own }),
      (error) => error instanceof PermissionDenied && /billing/.test(error.message),
    );
  });

  test("a client without a credential, or with a wrong one, is told so", async () => {
    await assert.rejects(takes({ ca }), Unauthenticated);
    await assert.rejects(takes({ ca, credential: `hft_${"0".repeat(16)}_${"0".repeat(43)}` }), Unauthenticated);
  });

  test("a plaintext client gets no session", async () => {
    const isRefused = (error: unknown) => error instanceof Unavailable || error instanceof Unauthenticated;
    await assert.rejects(takes({ requestTimeoutMs: 3_000 }), isRefused);
  });

  test("a certificate that is none of a node is not trusted, though the authority signed it", async (t) => {
    const impostor = createSecureServer({ cert: readFileSync(own.cert), key: readFileSync(own.key) });
    await new Promise<void>((listening) => impostor.listen(0, "127.0.0.1", listening));
    t.after(() => impostor.close());
    const { port } = impostor.address() as { port: number };
    const isDistrust = (error: unknown) =>
      error instanceof Unauthenticated && /none of a node|certificate/.test(error.message);
    await assert.rejects(takes({ ca, authFile }, `127.0.0.1:${port}`), isDistrust);
  });

  test("a node that is slow with its handshakes is reached at last", async (t) => {
    // The first handshake has a second, and the next one two.
    const [host, port] = endpoint.split(":") as [string, string];
    const slow = createServer({ pauseOnConnect: true }, (from) => {
      const wait = setTimeout(() => {
        const to = createConnection({ host, port: Number(port) });
        from.pipe(to).pipe(from);
        to.on("error", () => from.destroy());
        from.on("close", () => to.destroy());
      }, 1_200);
      from.on("error", () => clearTimeout(wait));
    });
    await new Promise<void>((listening) => slow.listen(0, "127.0.0.1", listening));
    t.after(() => slow.close());
    const address = `127.0.0.1:${(slow.address() as AddressInfo).port}`;
    await takes({ ca, authFile, discover: false, requestTimeoutMs: 10_000 }, address);
  });

  test("wrong files are told at once", () => {
    assert.throws(() => new Client("a:1", { ca: file("nothing.pem") }), /ENOENT/);
    assert.throws(() => new Client("a:1", { authFile: file("nothing") }), /ENOENT/);
    assert.throws(() => new Client("a:1", { ...own }), /of no use without TLS/);
    assert.throws(() => new Client("a:1", { ca, cert: own.cert }), /give both/);
    assert.throws(() => new Client("a:1", { ca, verify: "nothing" as "host" }), /verify is/);
    assert.throws(() => new Client("a:1", { ca: own.cert }), /does not say of which cluster/);
  });
});

test("the patience with handshakes grows while they take too long", () => {
  for (const [ttl, seconds] of [
    [30n, [1n, 2n, 4n, 8n, 10n, 10n]],
    [2n, [1n, 1n, 1n]],
  ] as const) {
    const patience = new HandshakePatience(ttl * 1_000n * MS);
    for (const wanted of seconds) {
      assert.equal(patience.duration, wanted * 1_000n * MS);
      patience.note(true);
    }
    patience.note(false);
    assert.equal(patience.duration, 1_000n * MS);
  }
});
