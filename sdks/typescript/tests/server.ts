/** A real node for tests. The program `holdfast` is named by HOLDFAST_BIN, or is in PATH. */

import { type ChildProcess, execFile, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { createServer, type Server as NetServer } from "node:net";
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

/** Each node has a port for clients, and the next one for its peers. The ports of node 2 are 10 higher, and so on. */
export async function freePort(nodes = 1): Promise<number> {
  for (;;) {
    const servers: NetServer[] = [];
    const listen = async (port: number) => {
      const server = createServer();
      servers.push(server);
      await once(server.listen(port, "127.0.0.1"), "listening");
      return (server.address() as { port: number }).port;
    };
    try {
      const first = await listen(0);
      for (let port = first; port < first + 10 * nodes; port += 10) {
        if (port !== first) await listen(port);
        await listen(port + 1);
      }
      return first;
    } catch {
      // One of the others is taken.
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

export interface ServerOptions {
  /** It speaks TLS and demands credentials. Commands are those of its administrator. */
  isSecure?: boolean;
  nodes?: number;
  groups?: number;
}

/** A cluster, by default of one node and one group. */
export class Server {
  private constructor(
    readonly endpoint: string,
    private readonly node: ChildProcess,
    private readonly directory: string,
    private readonly env: NodeJS.ProcessEnv,
  ) {}

  static async start({ isSecure = false, nodes = 1, groups = 1 }: ServerOptions = {}): Promise<Server> {
    const [port, directory] = [await freePort(nodes), temporaryDirectory()];
    const data = join(directory, "data");
    const shape = ["--nodes", `${nodes}`, "--groups", `${groups}`];
    const args = ["dev", ...shape, "--no-http", "--port", `${port}`, "--data-dir", data];
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
