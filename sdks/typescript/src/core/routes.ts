/**
 * Which group of the cluster has which locks.
 *
 * A client learns it from the welcome of each session. Its map can be out of date. The group that is asked then refuses
 * with `wrong_group`, and has done nothing. So an old map makes a request slow, and never wrong.
 *
 * Invariant: the epoch of `Routes` only rises, whatever order the maps come in.
 */

import { SeveralGroups, type WrongGroup } from "../errors.js";
import { type GroupMap, Tier } from "../gen/holdfast/v1/holdfast_pb.js";
import { MS } from "./lease.js";
import { Backoff } from "./pacing.js";
import type { Entry } from "./requests.js";
import { SLOTS, slotOf } from "./slots.js";

/** The root group: the only one of a cluster that tells no map. */
export const ROOT = 1;

const GROUPS_MAX = 64;
/** After so many refusals the caller gets the last one: the groups do not agree on which of them has the lock. */
const REDIRECTS_MAX = 8;
/** How long a request waits for a newer map before it asks again by the present one. */
const MAP_PATIENCE = 2_000n * MS;

export class Routes {
  /** 0 without a map. */
  epoch = 0n;
  /** The group of each slot. Undefined: all locks are in the root group. */
  private owners: Uint8Array | undefined;
  /** The client address of each group's leader; empty if it is not known. */
  private leaders = new Map<number, string>();

  /** Takes a map that is complete and not older. True if it is a newer one: the owners of slots may be others. */
  learn(map: GroupMap): boolean {
    const owners = ownersOf(map);
    if (owners === undefined) return false;
    const isNewer = this.owners === undefined || map.epoch > this.epoch;
    // Of two maps with one epoch the later one has the leaders of now.
    const isSame = map.epoch === this.epoch && this.owners?.every((owner, slot) => owner === owners[slot]);
    if (!isNewer && !isSame) return false;
    this.epoch = map.epoch;
    this.owners = owners;
    this.leaders = new Map(map.groups.map(({ group, leader }) => [group, leader]));
    return isNewer;
  }

  /** The group that a request for new locks, or a read, goes to. Throws `SeveralGroups` if there is none. */
  groupOf({ fields: { name, members, tier } }: Entry): number {
    // The leader of the root group has the efficiency tier, whatever the name.
    if (tier === Tier.EFFICIENCY) return ROOT;
    const [first = "", ...others] = members?.map((member) => member.name) ?? [name ?? ""];
    const group = this.groupOfName(first);
    const elsewhere = others.find((other) => this.groupOfName(other) !== group);
    if (elsewhere !== undefined) throw severalGroups([first, elsewhere], [group, this.groupOfName(elsewhere)]);
    return group;
  }

  leaderOf(group: number): string {
    return this.leaders.get(group) ?? "";
  }

  private groupOfName(name: string): number {
    return this.owners?.[slotOf(name)] ?? ROOT;
  }
}

/** The owner of each slot; undefined unless the map gives each to exactly one group. */
function ownersOf({ groups }: GroupMap): Uint8Array | undefined {
  const owners = new Uint8Array(SLOTS);
  let last = 0;
  for (const { group, slots } of groups) {
    if (group <= last || group > GROUPS_MAX) return undefined;
    last = group;
    for (const { first, count } of slots) {
      const end = first + count;
      if (count === 0 || end > SLOTS || owners.subarray(first, end).some((owner) => owner !== 0)) return undefined;
      owners.fill(group, first, end);
    }
  }
  return owners.includes(0) ? undefined : owners;
}

function severalGroups(names: [string, string], groups: [number, number]): SeveralGroups {
  const [one, other] = names;
  const message =
    `'${one}' and '${other}' are in different groups of the cluster (${groups.join(" and ")}), so they cannot be taken ` +
    `at one moment; put the same tag into their names, such as {order}/${one} and {order}/${other}`;
  return new SeveralGroups("several_groups", message);
}

/** The tries of one request that groups refuse because they do not own its locks. */
export class Redirects {
  private count = 0;
  private readonly backoff: Backoff;

  /** `random` as that of `Backoff`. */
  constructor(random: () => number) {
    this.backoff = new Backoff(random);
  }

  /**
   * The group `asked` has refused, and `owner` has the locks by the map of now. How long the request waits before it is
   * sent to their owner; a newer map ends the wait. Undefined: the caller gets the refusal.
   */
  next(refusal: WrongGroup, asked: number, owner: number, epoch: bigint): bigint | undefined {
    // What may have been done must not be done in another group, too.
    if (refusal.mayHaveHappened || this.count === REDIRECTS_MAX) return undefined;
    this.count += 1;
    if (owner !== asked) return 0n;
    return refusal.mapEpoch > epoch ? MAP_PATIENCE : this.backoff.nextDelay();
  }
}
