/** What a read of a lock tells. */

import type { Owner, StatusResponse } from "./gen/holdfast/v1/holdfast_pb.js";

/** A holder or a waiter. */
export interface Participant {
  /** The public id of the session. */
  session: string;
  /** Of a holder; 0 for a waiter. */
  token: bigint;
  metadata: Uint8Array;
  application: string;
  host: string;
}

/** Who holds a lock and who waits for it: how many, and the first ten of each. */
export interface Status {
  name: string;
  holders: Participant[];
  waiters: Participant[];
  holderCount: number;
  waiterCount: number;
}

export function statusOf({ name, holders, waiters, holderCount, waiterCount }: StatusResponse): Status {
  return {
    name,
    holders: holders.map((holder) => participant(holder, holder.token)),
    waiters: waiters.map((waiter) => participant(waiter, 0n)),
    holderCount: Number(holderCount),
    waiterCount: Number(waiterCount),
  };
}

interface Told {
  publicSessionId: string;
  metadata: Uint8Array;
  owner?: Owner | undefined;
}

function participant({ publicSessionId, metadata, owner }: Told, token: bigint): Participant {
  const { application = "", host = "" } = owner ?? {};
  return { session: publicSessionId, token, metadata, application, host };
}
