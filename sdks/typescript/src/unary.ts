/** Calls that need no session, and are answered once. Any node serves them. */

import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { follow, type Nodes, type StreamCall } from "./following.js";

/** A node that takes longer is left for the next. */
const ANSWER_PATIENCE_MS = 2_000;

/** One answer is a stream of one message, so it is asked for as a stream is: at one node after the other. */
export async function callAny<I extends DescMessage, O extends DescMessage>(
  nodes: Nodes,
  call: StreamCall<I, O>,
): Promise<MessageShape<O>> {
  for await (const { frame } of follow(nodes, { ...call, patienceMs: ANSWER_PATIENCE_MS }, undefined)) {
    if (frame !== undefined) return frame;
  }
  throw new Error("a call is repeated until it is answered or fails");
}
