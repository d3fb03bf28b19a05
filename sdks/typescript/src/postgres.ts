/**
 * Fencing in PostgreSQL, for node-postgres: a transaction goes on only if its token is not out of date.
 *
 * ```ts
 * await fencedTransaction(pool, guard, async (client) => {
 *   await client.query("UPDATE orders SET paid = true WHERE id = 42");
 * });
 * ```
 *
 * `migrate` creates what it needs: run it once. After a refusal the transaction can only be rolled back.
 *
 * @module postgres
 */

import { readFileSync } from "node:fs";
import { type FenceRefusal, FenceRefused } from "./errors.js";
import type { Fenced, FenceOptions } from "./fence.js";

/** Creates schema, table and functions; can be run again. */
export const MIGRATION = readFileSync(new URL("../resources/fence.sql", import.meta.url), "utf8");

const KINDS: Record<string, FenceRefusal> = {
  ZF001: "stale",
  ZF002: "missing",
  ZF003: "malformed",
  ZF004: "zero",
  ZF005: "other_resource",
  ZF006: "best_effort",
  ZF007: "not_fenceable",
};

/** What runs statements: node-postgres' `Client` or `PoolClient`. */
export interface Queryable {
  query(text: string, values?: unknown[]): Promise<unknown>;
}

/** What gives connections: node-postgres' `Pool`. */
export interface Pool<C extends Queryable> {
  connect(): Promise<C & { release(error?: Error | boolean): void }>;
}

/** Options of checks in PostgreSQL. */
export interface PostgresFenceOptions extends FenceOptions {
  /** The name of the lock. By default that of the guard. */
  resource?: string;
}

/** Runs `MIGRATION`. */
export async function migrate(client: Queryable): Promise<void> {
  await client.query(MIGRATION);
}

/**
 * To be called within a transaction. Throws `FenceRefused` if the token is out of date, and `Lost` if the lock is. Until
 * the transaction ends, no other token of this resource passes.
 *
 * The guard can be a token in full form; then `resource` must be given.
 */
export async function fencePostgres(
  client: Queryable,
  guard: Fenced | string,
  { resource, acceptsBestEffort = false }: PostgresFenceOptions = {},
): Promise<void> {
  const [name, fence] = typeof guard === "string" ? [resource, guard] : [resource ?? guard.name, guard.fence];
  if (name === undefined) throw new TypeError("a token alone does not say which resource it is for: give resource");
  try {
    await client.query("SELECT holdfast.check_fence($1, $2, $3)", [name, fence, acceptsBestEffort]);
  } catch (error) {
    throw refusal(error) ?? error;
  }
}

/** Runs work in a transaction of its own that begins with `fencePostgres`. It is rolled back if anything throws. */
export async function fencedTransaction<C extends Queryable, T>(
  pool: Pool<C>,
  guard: Fenced | string,
  work: (client: C) => Promise<T>,
  options: PostgresFenceOptions = {},
): Promise<T> {
  const client = await pool.connect();
  let broken: Error | undefined;
  try {
    await client.query("BEGIN");
    await fencePostgres(client, guard, options);
    const result = await work(client);
    await client.query("COMMIT");
    return result;
  } catch (error) {
    await client.query("ROLLBACK").catch((failure: Error) => {
      broken = failure;
    });
    throw error;
  } finally {
    client.release(broken);
  }
}

/** What the database said, if it refused the token. */
function refusal(error: unknown): FenceRefused | undefined {
  const { code, detail, message } = error as { code?: string; detail?: string; message?: string };
  const kind = KINDS[code ?? ""];
  if (kind === undefined) return undefined;
  const highest = /highest: ([0-9]+)/.exec(detail ?? "")?.[1];
  return new FenceRefused(kind, message ?? kind, highest === undefined ? undefined : BigInt(highest));
}
