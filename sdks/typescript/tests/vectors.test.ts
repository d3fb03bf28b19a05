import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { answer } from "../conformance/vectors.js";
import { ROOT } from "./server.js";

for (const kind of ["lease", "fence", "endpoints", "slots"]) {
  test(`every recorded case of ${kind} has the recorded answer`, () => {
    const lines = readFileSync(new URL(`crates/conformance/vectors/${kind}.jsonl`, ROOT), "utf8")
      .trimEnd()
      .split("\n");
    assert.ok(lines.length > 300);
    for (const line of lines) {
      const recorded = JSON.parse(line);
      assert.deepEqual(answer(kind, recorded.in), recorded.out, line);
    }
  });
}
