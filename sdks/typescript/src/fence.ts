/**
 * The rule by which a resource lets a write pass: for resources that check tokens in this process.
 *
 * The check must be one step with the write that it protects, and the mark must be as durable as the data. For
 * PostgreSQL and Redis, use `holdfast/postgres` and `holdfast/redis`.
 *
 * @module fence
 */

import { createHash } from "node:crypto";
import { FenceRefused } from "./errors.js";

const FENCE = /^hf1\.([LB])\.([0-9a-f]{16})\.(0|[1-9][0-9]{0,18})$/;
const TOKEN_LIMIT = 1n << 63n;

/** What has a token in full form, such as a guard. */
export interface Fenced {
  readonly name: string;
  readonly fence: string;
}

/** A token that belongs to the resource. Whether it is out of date is not known yet. */
export interface Claim {
  resource: string;
  token: bigint;
}

/** Options of checks. */
export interface FenceOptions {
  /** Takes tokens of the efficiency tier, and no others. */
  acceptsBestEffort?: boolean;
}

function nameHash(name: string): string {
  return createHash("sha256").update(name, "utf8").digest("hex").slice(0, 16);
}

/**
 * All that can be said of a token without knowing any other. Throws `FenceRefused`.
 *
 * `resource` is the name that the lock has. It must come from the resource itself, not from the caller.
 */
export function admit(fence: string | null | undefined, resource: string, options: FenceOptions = {}): Claim {
  const { acceptsBestEffort = false } = options;
  if (fence === null || fence === undefined) {
    throw new FenceRefused("missing", `the write to '${resource}' came without a fencing token: send guard.fence`);
  }
  if (fence === "") {
    throw new FenceRefused(
      "not_fenceable",
      `the fencing token for '${resource}' is empty, as that of a permit is: lock exclusively`,
    );
  }
  const [, tier, hash, digits] = FENCE.exec(fence) ?? [];
  const token = digits === undefined ? TOKEN_LIMIT : BigInt(digits);
  if (token >= TOKEN_LIMIT) {
    throw new FenceRefused(
      "malformed",
      `the fencing token for '${resource}' cannot be read: send guard.fence as it was granted`,
    );
  }
  if (token === 0n) {
    throw new FenceRefused("zero", `the fencing token for '${resource}' has the number 0, which is never granted`);
  }
  if (hash !== nameHash(resource)) {
    throw new FenceRefused(
      "other_resource",
      `the fencing token belongs to another resource than '${resource}': take that lock`,
    );
  }
  if (acceptsBestEffort && tier !== "B") {
    throw new FenceRefused("not_best_effort", `'${resource}' takes tokens of the efficiency tier only`);
  }
  if (!acceptsBestEffort && tier === "B") {
    throw new FenceRefused(
      "best_effort",
      `'${resource}' takes no best-effort token: take the lock in the correctness tier`,
    );
  }
  return { resource, token };
}

/** The refusal of a token that is out of date. */
export function stale({ resource, token }: Claim, highest: bigint): FenceRefused {
  return new FenceRefused(
    "stale",
    `token ${token} for '${resource}' is out of date, ${highest} has been seen: the lock was lost. Do not send this ` +
      "write again: take the lock again, and begin with reading",
    highest,
  );
}

/** The highest token that a resource in this process has seen. */
export class HighWaterMark {
  constructor(public token = 0n) {}

  /** Lets the claim pass and remembers it, or throws `FenceRefused`. */
  raiseTo(claim: Claim): void {
    if (claim.token < this.token) throw stale(claim, this.token);
    this.token = claim.token;
  }
}
