/**
 * When a client that the nodes deny gives its session up.
 *
 * One denial proves little. A node that does not lead may not know the newest credentials yet. A program that renews
 * its credential may be late by a moment. So a client gives its session up only when
 *
 * - the latest answer of each known node, if it gave one, is a denial,
 * - at least one of these denials is final, which is what the leader's is,
 * - and denials have gone on for a third of the TTL, at most 5 s, without a node that served the session.
 *
 * An answer that is older than that does not count: the node may say something else by now.
 */

import { type Failure, Reason } from "../gen/holdfast/v1/holdfast_pb.js";
import { isDenial } from "./answers.js";
import { MS, smaller } from "./lease.js";

/** Long enough to replace a credential that has ended. */
const PATIENCE_MAX = 5_000n * MS;

interface NodeAnswer {
  at: bigint;
  denies: boolean;
  isFinal: boolean;
}

export class Denials {
  private readonly patience: bigint;
  /** The latest answer of each known node. It has no other addresses, so leader hints do not make it grow. */
  private readonly answers = new Map<string, NodeAnswer>();
  /** When the first of the denials came that have gone on since. */
  private since: bigint | undefined;

  constructor(ttl: bigint) {
    this.patience = smaller(PATIENCE_MAX, ttl / 3n);
  }

  /** A node serves the session, or the session has ended. */
  clear(): void {
    this.answers.clear();
    this.since = undefined;
  }

  /** A node has not let the client resume. True if the client has to give its session up. */
  note(now: bigint, address: string, failure: Failure, known: readonly string[]): boolean {
    for (const [node, { at }] of this.answers) {
      if (now - at > this.patience || !known.includes(node)) this.answers.delete(node);
    }
    if (!this.hasDenial) this.since = undefined;
    const denies = isDenial(failure);
    // A connection that broke is no answer of a node.
    if (failure.reason !== Reason.UNSPECIFIED && known.includes(address)) {
      this.answers.set(address, { at: now, denies, isFinal: !failure.retryable });
    }
    if (!this.hasDenial) {
      this.since = undefined;
      return false;
    }
    this.since ??= now;
    const answers = [...this.answers.values()];
    const byAll = answers.every((answer) => answer.denies) && answers.some((answer) => answer.isFinal);
    return denies && byAll && now - this.since >= this.patience;
  }

  private get hasDenial(): boolean {
    return [...this.answers.values()].some((answer) => answer.denies);
  }
}
