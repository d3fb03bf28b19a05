/** A real node for tests. The program `holdfast` is named by HOLDFAST_BIN, or is in PATH. */

import { type ChildProcess, execFile, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";

/** Of the repository: the tests run from `sdks/typescript/build/tests`. */
export const ROOT = new URL("../../../../", import.meta.url);

const READY_MS = 60_000;

/** A program in PATH, or where Debian keeps those of PostgreSQL's server. In CI it has to be there. */
export function find(program: string): string | undefined {
  const versions = existsSync("/usr/lib/postgresql") ? readdirSync("/usr/lib/postgresql") : [];
  const debian = versions.map((it) => `/usr/lib/postgresql/${it}/bin`);
  const places = [...(process.env.PATH ?? "").split(delimiter), ...debian];
  const found = places.map((place) => join(place, program)).find(existsSync);
  if (found === undefined && process.env.CI === "true") throw new Error(`${program} is not installed`);
  return found;
}

/** The `holdfast` to test with, and how a test says that it needs it. */
export const BINARY = process.env.HOLDFAST_BIN ?? find("holdfast") ?? "";
export const needsHoldfast = { skip: BINARY === "" && "the program `holdfast` is not there; set HOLDFAST_BIN" };

/** Two ports next to each other: the second is for peers. */
export async function freePort(): Promise<number> {
  for (;;) {
    const servers = [createServer(), createServer()] as const;
    try {
      await once(servers[0].listen(0, "127.0.0.1"), "listening");
      const { port } = servers[0].address() as { port: number };
      await once(servers[1].listen(port + 1, "127.0.0.1"), "listening");
      return port;
    } catch {
      // The second one is taken.
    } finally {
      for (const server of servers) server.close();
    }
  }
}

export function temporaryDirectory(): string {
  return mkdtempSync(join(tmpdir(), "holdfast-node-"));
}

/** Starts a program, and resolves when it has printed a line that says so. */
export async function startProgram(
  program: string,
  args: string[],
  isReady: RegExp,
  options = {},
): Promise<ChildProcess> {
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], ...options });
  const giveUp = setTimeout(() => child.kill("SIGKILL"), READY_MS);
  const said: string[] = [];
  await new Promise<void>((resolve, reject) => {
    for (const stream of [child.stdout, child.stderr]) {
      createInterface({ input: stream as NodeJS.ReadableStream }).on("line", (line) => {
        said.push(line);
        if (isReady.test(line)) resolve();
      });
    }
    child.on("error", reject);
    child.on("exit", () => reject(new Error(`${program} did not start: ${said.join("\n")}`)));
  });
  clearTimeout(giveUp);
  return child;
}

export async function stopProgram(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill("SIGKILL");
  await once(child, "exit");
}

/** A cluster of one node. */
export class Server {
  private constructor(
    readonly endpoint: string,
    private readonly node: ChildProcess,
    private readonly directory: string,
    private readonly env: NodeJS.ProcessEnv,
  ) {}

  /** One that is secure speaks TLS and demands credentials. Commands are those of its administrator. */
  static async start({ isSecure = false } = {}): Promise<Server> {
    const [port, directory] = [await freePort(), temporaryDirectory()];
    const data = join(directory, "data");
    const args = ["dev", "--nodes", "1", "--no-http", "--port", `${port}`, "--data-dir", data];
    const node = await startProgram(BINARY, isSecure ? [...args, "--secure"] : args, /^ready$/);
    const endpoint = `127.0.0.1:${port}`;
    const env = isSecure ? { HOLDFAST_CONFIG: join(data, "client.toml") } : { HOLDFAST_ENDPOINTS: endpoint };
    return new Server(endpoint, node, directory, { ...process.env, ...env });
  }

  /** A file in the node's directory. */
  file(name: string): string {
    return join(this.directory, "data", name);
  }

  /** Runs `holdfast` with these arguments against the node. It does not block the event loop. */
  async command(...args: string[]): Promise<string> {
    const { env } = this;
    return (await promisify(execFile)(BINARY, args, { env })).stdout;
  }

  commandSync(...args: string[]): string {
    const { env } = this;
    return execFileSync(BINARY, args, { env, encoding: "utf8" });
  }

  async stop(): Promise<void> {
    await stopProgram(this.node);
    rmSync(this.directory, { recursive: true, force: true });
  }
}
