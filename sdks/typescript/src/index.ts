/**
 * Distributed locks with fencing tokens: the client of Holdfast.
 *
 * @module holdfast
 */

export { Client, type ClientOptions, type Routine } from "./client.js";
export type { Circuit } from "./core/pacing.js";
export { Election, type Leader, Leadership, type LeadOptions, type Observed } from "./election.js";
export type { Log, LogRecord } from "./engine.js";
export * from "./errors.js";
export { Guard, GuardAll, HeldLocks, type ReleaseOutcome } from "./guards.js";
export { type LockAllOptions, type LockOptions, runAsActor, type WaitOptions } from "./lock-options.js";
export type { SecurityOptions } from "./security.js";
export type { Participant, Status } from "./status.js";
export type { LockEvent, Watched, WatchOptions } from "./watch.js";
