import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { ROOT } from "./server.js";

const CORE = new URL("sdks/typescript/src/core/", ROOT);
const IMPORTS = /^(\.\/[a-z-]+\.js|\.\.\/errors\.js|\.\.\/gen\/.*|@bufbuild\/protobuf|node:net)$/;
const IMPURE = /\b(Date|performance|process|setTimeout|setImmediate|setInterval|queueMicrotask|Math\.random|await)\b/;

/** What is wrong with a file of the core. `node:net` is there for the form of addresses. */
function complaints(source: string): string[] {
  const code = source.replaceAll(/\/\*.*?\*\/|\/\/.*/gs, "");
  const imports = [...code.matchAll(/from "([^"]+)"/g)].map((match) => match[1] ?? "");
  const wrong = imports.filter((it) => !IMPORTS.test(it));
  if (imports.includes("node:net") && !code.includes('import { isIPv6 } from "node:net"')) wrong.push("node:net");
  return [...wrong, ...(IMPURE.exec(code) ?? []).slice(0, 1)];
}

test("the core has no clock, no I/O and no chance of its own", () => {
  for (const file of readdirSync(CORE)) {
    assert.deepEqual(complaints(readFileSync(new URL(file, CORE), "utf8")), [], file);
  }
});

test("a clock or a socket that is planted in the core is found", () => {
  assert.deepEqual(complaints("const now = Date.now();"), ["Date"]);
  assert.deepEqual(complaints('import { connect } from "node:net";'), ["node:net"]);
  assert.deepEqual(complaints('import { now } from "../clock.js";'), ["../clock.js"]);
});
