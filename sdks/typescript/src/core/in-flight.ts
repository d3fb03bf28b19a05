/** The requests of a session that have no answer yet. */

import { earliest } from "./lease.js";
import type { Entry } from "./requests.js";

/**
 * Ids start at 1 and rise by one. `ackedThrough` tells the servers which answers they may drop.
 *
 * An acquire that is known to wait counts as answered: the servers find it by its wait, and later by its hold.
 */
export class InFlight {
  lastId = 0n;
  /** In the order of the ids. */
  private readonly unacknowledged = new Map<bigint, Entry>();
  private readonly waiting = new Map<bigint, Entry>();
  private staged = new Set<bigint>();
  /** No request should have been answered before then. It may be too early, and is set right when it is reached. */
  answersDueFrom: bigint | undefined;

  reserveId(): bigint {
    this.lastId += 1n;
    return this.lastId;
  }

  stage(entry: Entry): bigint {
    const id = this.park(entry);
    this.stageAgain(id);
    return id;
  }

  /** A new request that must not go out yet. */
  park(entry: Entry): bigint {
    const id = this.reserveId();
    entry.isParked = true;
    this.unacknowledged.set(id, entry);
    return id;
  }

  stageAgain(id: bigint): void {
    const entry = this.get(id);
    if (entry === undefined) return;
    entry.isParked = false;
    entry.answerDue = undefined;
    this.staged.add(id);
  }

  stageAllAgain(): void {
    this.answersDueFrom = undefined;
    this.staged = new Set();
    for (const [id, entry] of this.entries()) {
      if (entry.isParked) continue;
      entry.wasSentBefore ||= entry.firstSentAt !== undefined;
      this.stageAgain(id);
    }
  }

  /** The next of those that are staged, in the order of their ids, as far as their names go. */
  takeStaged(namesMax: number, mayGo: (entry: Entry) => boolean): [bigint, Entry][] {
    const taken: [bigint, Entry][] = [];
    let names = 0;
    for (const id of [...this.staged].sort(byValue)) {
      const entry = this.get(id);
      if (entry !== undefined && !mayGo(entry)) continue;
      names += entry?.nameCount ?? 0;
      if (names > namesMax && taken.length > 0) break;
      this.staged.delete(id);
      if (entry !== undefined) taken.push([id, entry]);
    }
    return taken;
  }

  get isEmpty(): boolean {
    return this.unacknowledged.size === 0 && this.waiting.size === 0;
  }

  get hasStaged(): boolean {
    return this.staged.size > 0;
  }

  markSent(entry: Entry, now: bigint, answerDue: bigint): void {
    entry.firstSentAt ??= now;
    entry.answerDue = answerDue;
    this.answersDueFrom = earliest([this.answersDueFrom, answerDue]);
  }

  markWaiting(id: bigint): void {
    const entry = this.unacknowledged.get(id);
    if (entry === undefined) return;
    this.unacknowledged.delete(id);
    this.waiting.set(id, entry);
  }

  isWaiting(id: bigint): boolean {
    return this.waiting.has(id);
  }

  /** Removes a request that was answered, or whose answer is no longer needed. */
  settle(id: bigint): Entry | undefined {
    const entry = this.get(id);
    this.staged.delete(id);
    this.unacknowledged.delete(id);
    this.waiting.delete(id);
    if (this.isEmpty) this.answersDueFrom = undefined;
    return entry;
  }

  takeOut(isMeant: (entry: Entry) => boolean): Entry[] {
    const meant = this.entries().filter(([, entry]) => isMeant(entry));
    for (const [id] of meant) this.settle(id);
    return meant.map(([, entry]) => entry);
  }

  get(id: bigint): Entry | undefined {
    return this.unacknowledged.get(id) ?? this.waiting.get(id);
  }

  entries(): [bigint, Entry][] {
    return [...this.waiting, ...this.unacknowledged];
  }

  findCall(call: bigint): [bigint, Entry] | undefined {
    const entry = this.get(call);
    if (entry?.call === call) return [call, entry];
    return this.entries().find(([, it]) => it.call === call);
  }

  isAnswerOverdue(now: bigint): boolean {
    if (this.answersDueFrom !== undefined && this.answersDueFrom <= now) {
      this.answersDueFrom = earliest(this.entries().map(([, entry]) => entry.answerDue));
    }
    return this.answersDueFrom !== undefined && this.answersDueFrom <= now;
  }

  ackedThrough(): bigint {
    const oldest = this.unacknowledged.keys().next();
    return oldest.done ? this.lastId : oldest.value - 1n;
  }
}

function byValue(a: bigint, b: bigint): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
