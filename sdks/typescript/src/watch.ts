/** Watching what happens: a snapshot, then every event once and in order. For eyes and dashboards. */

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { follow, isGap, type Nodes } from "./following.js";
import { EndReason } from "./gen/holdfast/v1/holdfast_pb.js";
import {
  EventKind,
  type EventPosition,
  type WatchEvent,
  WatchFrameSchema,
  WatchRequestSchema,
} from "./gen/holdfast/v1/watch_pb.js";

/** What happened to locks or sessions. */
export interface LockEvent {
  /** For example `granted`, `queued`, `released`, `expired`. */
  kind: Lowercase<keyof typeof EventKind>;
  /** Nearly always one. */
  names: string[];
  /** The public id of the session. */
  session: string;
  token: bigint;
  metadata: Uint8Array;
  /** Why a hold ended, for example `ttl`. */
  reason: Lowercase<keyof typeof EndReason>;
  /** Who stepped in, and what else there is to say. */
  by: string;
  detail: string;
  /** For display only. */
  at: Date;
}

/** What a watch brings. */
export type Watched =
  /** A lock as it is; of the snapshot. */
  | { type: "lock"; name: string; holderCount: number; waiterCount: number; token: bigint; metadata: Uint8Array }
  /** Events follow. */
  | { type: "snapshot_complete" }
  | { type: "event"; event: LockEvent }
  /** The watch could not go on without a gap. What was told before may be out of date; a snapshot follows. */
  | { type: "restarted"; why: string };

/** Options of `watch`. */
export interface WatchOptions {
  /** False: only what happens from now on. */
  snapshot?: boolean;
  /** Ends the watch: it throws `Cancelled`. To leave the loop ends it, too. */
  signal?: AbortSignal | undefined;
}

export async function* watch(
  nodes: Nodes,
  prefix: string,
  { snapshot = true, signal }: WatchOptions,
): AsyncGenerator<Watched, never> {
  /** The last one of each group of the cluster. */
  const positions = new Map<number, EventPosition>();
  let isSnapshotBegun = false;
  let withoutSnapshot = !snapshot;
  const call = {
    path: "/holdfast.v1.WatchService/Watch",
    input: WatchRequestSchema,
    output: WatchFrameSchema,
    request: () => create(WatchRequestSchema, { prefix, withoutSnapshot, ...after([...positions.values()]) }),
  };
  for await (const { frame, end } of follow(nodes, call, signal)) {
    if (end !== undefined) {
      // A snapshot that was told in part cannot be gone on with.
      const isCutOff = positions.size === 0 && isSnapshotBegun;
      if (isGap(end) || isCutOff) {
        positions.clear();
        isSnapshotBegun = withoutSnapshot = false;
        yield { type: "restarted", why: end.message };
      }
      continue;
    }
    if (frame.position !== undefined) positions.set(frame.position.group, frame.position);
    for (const lock of frame.locks) {
      isSnapshotBegun = true;
      const [holderCount, waiterCount] = [Number(lock.holderCount), Number(lock.waiterCount)];
      yield { type: "lock", name: lock.name, holderCount, waiterCount, token: lock.token, metadata: lock.metadata };
    }
    if (frame.snapshotComplete) {
      isSnapshotBegun = true;
      yield { type: "snapshot_complete" };
    }
    for (const event of frame.events) yield { type: "event", event: eventOf(event) };
  }
  throw new Error("a stream is followed for ever");
}

/** Where to go on. Nodes that know one group take one position. */
function after(positions: EventPosition[]): MessageInitShape<typeof WatchRequestSchema> {
  const [only] = positions;
  return positions.length === 1 && only !== undefined ? { after: only } : { afterGroups: positions };
}

function eventOf(event: WatchEvent): LockEvent {
  const { names, token, metadata, by, detail, publicSessionId, unixMs } = event;
  return {
    kind: lowerCase(EventKind[event.kind] as keyof typeof EventKind | undefined),
    names,
    session: publicSessionId,
    token,
    metadata,
    reason: lowerCase(EndReason[event.reason] as keyof typeof EndReason | undefined),
    by,
    detail,
    at: new Date(Number(unixMs)),
  };
}

function lowerCase<K extends string>(name: K | undefined): Lowercase<K> {
  return (name ?? "unspecified").toLowerCase() as Lowercase<K>;
}
