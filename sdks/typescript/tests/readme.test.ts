/** What a new user does: an empty directory, the README's commands and its first lines, but for the address. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { needsHoldfast, ROOT, Server, temporaryDirectory } from "./server.js";

const LIBRARY = fileURLToPath(new URL("sdks/typescript", ROOT));
const README = readFileSync(join(LIBRARY, "README.md"), "utf8");
const PRODUCT = readFileSync(new URL("README.md", ROOT), "utf8");
const blocks = (language: string, readme = README) =>
  [...readme.matchAll(new RegExp(`\`\`\`${language}\n(.*?)\`\`\``, "gs"))].map((match) => match[1] ?? "");

test("the package installs into an empty directory, and the ten lines run", needsHoldfast, async (t) => {
  const [server, directory] = [await Server.start(), temporaryDirectory()];
  t.after(async () => {
    await server.stop();
    rmSync(directory, { recursive: true, force: true });
  });
  // As it is after a clone.
  const clone = join(directory, "clone");
  const isBuilt = /\/sdks\/typescript\/(node_modules|dist|build)(\/|$)/;
  cpSync(LIBRARY, clone, { recursive: true, filter: (path) => !isBuilt.test(path) });
  const empty = join(directory, "empty");
  mkdirSync(empty);
  await promisify(execFile)("npm", ["install", "--no-audit", "--no-fund", clone], { cwd: empty });
  const [lines = ""] = blocks("js");
  writeFileSync(join(empty, "lock.mjs"), lines.replace("127.0.0.1:7420", server.endpoint));
  const { stdout } = await promisify(execFile)(process.execPath, ["lock.mjs"], { cwd: empty });
  assert.match(stdout, /^held, with the fencing token \d+n\na second holder is refused: true\n$/);
  // The line that `holdfast dev` prints. The lock is held until the program ends.
  const [, line = ""] =
    /\("TypeScript", "(.*)"\)/.exec(readFileSync(new URL("crates/cli/src/dev.rs", ROOT), "utf8")) ?? [];
  const printed = line.replaceAll('\\"', '"').replace("ADDRESS", server.endpoint);
  writeFileSync(join(empty, "dev.mjs"), `import { Client } from "holdfast";\n${printed};\nprocess.exit(0);\n`);
  const dev = await promisify(execFile)(process.execPath, ["dev.mjs"], { cwd: empty });
  assert.match(dev.stdout, /^hf1\.L\./);
});

test("the version is that of the cluster", () => {
  const [, version] = /^version = "(.+)"$/m.exec(readFileSync(new URL("Cargo.toml", ROOT), "utf8")) ?? [];
  for (const file of ["package.json", "package-lock.json"]) {
    assert.equal(JSON.parse(readFileSync(join(LIBRARY, file), "utf8")).version, version, file);
  }
});

test("every block of the README compiles, and the lines in the README of the product run", needsHoldfast, async (t) => {
  // Within the package, so that its own name is found.
  const [server, directory] = [await Server.start(), join(LIBRARY, "build", "readme")];
  mkdirSync(directory, { recursive: true });
  t.after(async () => {
    await server.stop();
    rmSync(directory, { recursive: true, force: true });
  });
  const given = `
    import { Client, runAsActor, type Guard } from "holdfast";
    import type { Redis } from "ioredis";
    import type { Pool, PoolClient } from "pg";
    declare const [signal, url, body, pool, client, redis, guard, hf]:
      [AbortSignal, string, string, Pool, PoolClient, Redis, Guard, Client];`;
  const write = (name: string, given: string, block: string) => {
    const imports = [given, ...block.matchAll(/^import .*$/gm)].join("\n");
    const body = block.replaceAll(/^import .*$/gm, "");
    writeFileSync(join(directory, `${name}.ts`), `${imports}\nexport async function block() {\n${body}\n}`);
  };
  for (const [index, block] of blocks("ts").entries())
    write(`block-${index}`, given, block.replaceAll("const hf = new", "const other = new"));
  const [lines = ""] = blocks("ts", PRODUCT);
  write("product", "", lines.replace("127.0.0.1:7420", server.endpoint));
  const config = {
    extends: "../../tsconfig.json",
    compilerOptions: { outDir: "out", rootDir: ".", declaration: false, noUnusedLocals: false },
    include: ["."],
  };
  writeFileSync(join(directory, "tsconfig.json"), JSON.stringify(config));
  const compiler = join(LIBRARY, "node_modules", "typescript", "bin", "tsc");
  await promisify(execFile)(process.execPath, [compiler, "-p", directory]).catch((error) => assert.fail(error.stdout));
  const run = 'const { block } = await import("./out/product.js"); await block();';
  const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", run], {
    cwd: directory,
  });
  assert.match(stdout, /^send this fence with each write: hf1\.L\./);
});
