/**
 * Fencing in Redis, for ioredis: one script checks the token and runs one command.
 *
 * ```ts
 * const key = new FencedKey("order:42");
 * await key.run(redis, guard, "SET", key.data, "paid");
 * ```
 *
 * The mark lies beside the data, in the same hash slot. It must be as durable as the data: use `appendonly yes` and
 * `appendfsync always` where a late write is damage, and never evict marks.
 *
 * @module redis
 */

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { admit, type Fenced, type FenceOptions, stale } from "./fence.js";

/** What is run in Redis. */
export const SCRIPT = readFileSync(new URL("../resources/fence.lua", import.meta.url), "utf8");

const SHA = createHash("sha1").update(SCRIPT).digest("hex");
const MARK_PREFIX = "holdfast:mark:";

/** What runs scripts: ioredis' `Redis` or `Cluster`. */
export interface ScriptRunner {
  eval(script: string, keyCount: number, ...keysAndArguments: (string | Buffer | number)[]): Promise<unknown>;
  evalsha(sha: string, keyCount: number, ...keysAndArguments: (string | Buffer | number)[]): Promise<unknown>;
}

/** The key of the data, and beside it that of its mark. */
export class FencedKey {
  readonly mark: string;

  /** `resource` is the name of the lock; by default the key. */
  constructor(
    readonly data: string,
    readonly resource = data,
  ) {
    if (/^[^{]*\{[^}]+\}/.test(data)) {
      // What stands before it has no brace, so the first tag of the mark's key is that of the data's.
      this.mark = `${MARK_PREFIX}${data}`;
    } else if (/[{}]/.test(data)) {
      throw new TypeError(`the key '${data}' has braces that are no hash tag: write {tag}rest, or leave them out`);
    } else {
      this.mark = `${MARK_PREFIX}{${data}}`;
    }
  }

  /**
   * Runs one command that touches this key, and others of the same hash tag, if the token passes. Throws `FenceRefused`
   * otherwise, and `Lost` if the lock is lost.
   */
  async run(redis: ScriptRunner, guard: Fenced | string, ...command: (string | Buffer | number)[]): Promise<unknown> {
    return this.runWith({}, redis, guard, ...command);
  }

  /** As `run`, with options. */
  async runWith(
    options: FenceOptions,
    redis: ScriptRunner,
    guard: Fenced | string,
    ...command: (string | Buffer | number)[]
  ): Promise<unknown> {
    const fence = typeof guard === "string" ? guard : guard.fence;
    const claim = admit(fence, this.resource, options);
    const call = [2, this.mark, this.data, claim.token.toString(), ...command] as const;
    const [passed, answer] = (await evaluate(redis, call)) as [number, unknown];
    if (Number(passed) !== 1) throw stale(claim, BigInt(String(answer)));
    return answer;
  }
}

/** By its digest, if the server knows the script. */
async function evaluate(
  redis: ScriptRunner,
  call: readonly [number, ...(string | Buffer | number)[]],
): Promise<unknown> {
  try {
    return await redis.evalsha(SHA, ...call);
  } catch (error) {
    if (error instanceof Error && error.message.startsWith("NOSCRIPT")) return redis.eval(SCRIPT, ...call);
    throw error;
  }
}
