/** Streams of the cluster's that need no session, and go on at another node when they break. */

import { create, type DescMessage, fromBinary, type MessageShape, toBinary } from "@bufbuild/protobuf";
import type { ClientReadableStream, ServiceError } from "@grpc/grpc-js";
import { now } from "./clock.js";
import { type Dialled, dial, failureOf, NotConnected } from "./connection.js";
import { rejected } from "./core/answers.js";
import { MS } from "./core/lease.js";
import { Backoff } from "./core/pacing.js";
import { Cancelled, Unavailable } from "./errors.js";
import { type Failure, FailureSchema, Reason } from "./gen/holdfast/v1/holdfast_pb.js";
import type { Security } from "./security.js";

/** A dead connection says nothing, and neither does a stream on which nothing happens. */
const KEEPALIVE = { "grpc.keepalive_time_ms": 5_000, "grpc.keepalive_timeout_ms": 3_000 };

/** Where streams are asked for. */
export interface Nodes {
  readonly addresses: readonly string[];
  readonly security: Security;
  /** If no node serves for so long, the stream fails. */
  readonly patienceMs: number;
}

/** A call of the cluster that answers with a stream. */
export interface StreamCall<I extends DescMessage, O extends DescMessage> {
  path: string;
  input: I;
  output: O;
  /** What to ask for now: after the last position that was told. */
  request: () => MessageShape<I>;
  /** How long a node may serve it. By default as long as it likes. */
  patienceMs?: number;
}

/** What a stream brought: a frame, or why it ended. After an end it is asked for again. */
export type Came<F> = { frame: F; end?: undefined } | { frame?: undefined; end: Failure };

/** The events since the position are no longer kept. */
export function isGap({ reason }: Failure): boolean {
  return reason === Reason.COMPACTED || reason === Reason.SLOW_READER;
}

/** Frames, and the ends between which they came. Failures that another try does not change are thrown. */
export async function* follow<I extends DescMessage, O extends DescMessage>(
  nodes: Nodes,
  call: StreamCall<I, O>,
  signal: AbortSignal | undefined,
): AsyncGenerator<Came<MessageShape<O>>, never> {
  const backoff = new Backoff(Math.random);
  let leader = "";
  let next = 0;
  let failures = 0;
  let failingSince: bigint | undefined;
  for (;;) {
    const address = leader || (nodes.addresses[next++ % nodes.addresses.length] as string);
    let end = create(FailureSchema, { message: "the stream ended", retryable: true });
    for await (const came of tryNode(nodes, call, address, signal)) {
      if (came.end !== undefined) {
        end = came.end;
        continue;
      }
      backoff.reset();
      failures = 0;
      failingSince = undefined;
      yield came;
    }
    if (signal?.aborted) throw new Cancelled(signal.reason);
    failures += 1;
    failingSince ??= now();
    // What one node refuses, the next may accept.
    const isLastWord = !end.retryable && (end.reason !== Reason.UNAUTHENTICATED || failures >= nodes.addresses.length);
    if (isLastWord && !isGap(end)) throw rejected(end);
    if (now() - failingSince > BigInt(nodes.patienceMs) * MS) {
      throw new Unavailable(`${address}: ${end.message}`, false);
    }
    leader = end.leader;
    yield { end };
    await pause(Number(backoff.nextDelay() / MS), signal);
  }
}

async function* tryNode<I extends DescMessage, O extends DescMessage>(
  { security }: Nodes,
  { path, input, output, request, patienceMs }: StreamCall<I, O>,
  address: string,
  signal: AbortSignal | undefined,
): AsyncGenerator<Came<MessageShape<O>>> {
  let dialled: Dialled | undefined;
  let stream: ClientReadableStream<MessageShape<O>> | undefined;
  const abort = () => stream?.cancel();
  try {
    dialled = await dial(address, security, KEEPALIVE);
    stream = dialled.channel.makeServerStreamRequest(
      path,
      (message: MessageShape<I>) => Buffer.from(toBinary(input, message)),
      (content: Buffer) => fromBinary(output, content),
      request(),
      dialled.metadata,
      patienceMs === undefined ? {} : { deadline: Date.now() + patienceMs },
    );
    signal?.addEventListener("abort", abort, { once: true });
    if (signal?.aborted) abort();
    for await (const frame of stream) yield { frame: frame as MessageShape<O> };
  } catch (error) {
    yield { end: endOf(error) };
  } finally {
    signal?.removeEventListener("abort", abort);
    stream?.cancel();
    dialled?.channel.close();
  }
}

function endOf(error: unknown): Failure {
  if (!(error instanceof NotConnected)) return failureOf(error as ServiceError);
  const isDenied = error.contact === "denied";
  const reason = isDenied ? Reason.UNAUTHENTICATED : Reason.UNSPECIFIED;
  return create(FailureSchema, { message: error.message, retryable: !isDenied, reason });
}

function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done, { once: true });
  });
}
