/** A stream to one node, on a channel of its own: dialling, frames, farewell. */

import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  Client as Channel,
  type ChannelOptions,
  type ClientDuplexStream,
  connectivityState,
  type Metadata,
  type ServiceError,
  status,
} from "@grpc/grpc-js";
import { MS } from "./core/lease.js";
import type { HandshakePatience } from "./core/pacing.js";
import type { Contact } from "./core/session.js";
import {
  type ClientFrame,
  ClientFrameSchema,
  type Failure,
  FailureSchema,
  Reason,
  type ServerFrame,
  ServerFrameSchema,
} from "./gen/holdfast/v1/holdfast_pb.js";
import type { Security } from "./security.js";

const CONNECT_TIMEOUT_MS = 1_000;
const FAREWELL_TIMEOUT_MS = 1_000;
const MIB = 1024 * 1024;
const OPTIONS: ChannelOptions = {
  // One connection, made once: which node is tried when is decided elsewhere.
  "grpc.use_local_subchannel_pool": 1,
  "grpc.enable_retries": 0,
  "grpc.enable_http_proxy": 0,
  "grpc.service_config_disable_resolution": 1,
  "grpc.max_send_message_length": 4 * MIB,
  "grpc.max_receive_message_length": 17 * MIB,
};
/** Codes that another try does not change, if the status did not come from a node. */
const FINAL = new Set([
  status.INVALID_ARGUMENT,
  status.OUT_OF_RANGE,
  status.UNIMPLEMENTED,
  status.UNAUTHENTICATED,
  status.PERMISSION_DENIED,
]);
/** How the system words it that no connection was made. With TLS, anything else is about certificates. */
const NETWORK = /\b(E[A-Z]{3,}|timed out|connection within|closed|hang up)\b/;

/** No connection was made. */
export class NotConnected extends Error {
  constructor(
    message: string,
    readonly contact: Contact,
  ) {
    super(message);
  }
}

/** A channel whose connection is made, and what each call on it carries. */
export interface Dialled {
  channel: Channel;
  metadata: Metadata;
}

/** Connects to a node within a second, or within the time that a TLS handshake may take. */
export async function dial(address: string, security: Security, options: ChannelOptions = {}): Promise<Dialled> {
  let channel: Channel | undefined;
  try {
    const metadata = await security.metadata();
    const all = { ...OPTIONS, ...security.channelOptions(address), ...options };
    channel = new Channel(`dns:${address}`, security.channel(address), all);
    await (security.hasTls ? secured(channel, security.handshakePatience) : ready(channel, CONNECT_TIMEOUT_MS));
    return { channel, metadata };
  } catch (error) {
    channel?.close();
    throw notConnected(error, security.hasTls);
  }
}

class TookTooLong extends Error {}

async function secured(channel: Channel, patience: HandshakePatience): Promise<void> {
  const timeoutMs = Number(patience.duration / MS);
  let tookTooLong = false;
  try {
    await ready(channel, timeoutMs);
  } catch (error) {
    tookTooLong = error instanceof TookTooLong;
    const words = `no TLS connection within ${timeoutMs} ms: the node is not there, or has many handshakes to make`;
    throw tookTooLong ? new Error(words) : error;
  } finally {
    patience.note(tookTooLong);
  }
}

function ready(channel: Channel, timeoutMs: number): Promise<void> {
  const connectivity = channel.getChannel();
  const deadline = Date.now() + timeoutMs;
  return new Promise((resolve, reject) => {
    const look = (timedOut?: Error) => {
      const state = connectivity.getConnectivityState(true);
      if (timedOut !== undefined) reject(new TookTooLong("no connection within a second"));
      else if (state === connectivityState.READY) resolve();
      else if (state === connectivityState.TRANSIENT_FAILURE) {
        // A call fails at once, and says why.
        channel.makeUnaryRequest(PING, bytes, bytes, NOTHING, (error) =>
          reject(error ?? new Error("the connection broke")),
        );
      } else connectivity.watchConnectivityState(state, deadline, look);
    };
    look();
  });
}

function notConnected(error: unknown, hasTls: boolean): NotConnected {
  const { details, message } =
    error instanceof Error ? (error as ServiceError) : { details: String(error), message: "" };
  const words = (details ?? message).replace(/^.*Last error: (Error: )?/, "").replace(/\. Resolution note: $/, "");
  if (words.includes("ECONNREFUSED")) {
    return new NotConnected(
      "connection refused: no node listens there; start one, or correct the endpoints",
      "refused",
    );
  }
  const isDenied = hasTls && (!NETWORK.test(words) || words.includes("EPROTO"));
  if (!isDenied) return new NotConnected(words, "not_made");
  // OpenSSL names its own source files, too.
  const why = /error:[0-9A-F]+:[^:]*:[^:]*:([^:]+):/.exec(words)?.[1] ?? words;
  const advice = "check that the node speaks TLS, and ca, cert and key";
  return new NotConnected(`no TLS connection: ${why}; ${advice}`, "denied");
}

const SESSION = "/holdfast.v1.LockService/Session";
/** Each node answers it to every client, and does nothing for it. */
const PING = "/grpc.health.v1.Health/Check";
const NOTHING = Buffer.alloc(0);
const bytes = (content: Buffer) => content;

/** What a connection tells. After `ended` it tells nothing more. */
export interface ConnectionEvents {
  frame(frame: ServerFrame): void;
  /** `isFromNode`: a node said why. Otherwise a proxy may have, or this library. */
  ended(failure: Failure, isFromNode: boolean): void;
  /** It has room again. */
  drained(): void;
  /** Any sign of life that is no frame. */
  heard(): void;
}

export class Connection {
  hasRoom = true;
  private readonly channel: Channel;
  private readonly metadata: Metadata;
  private readonly stream: ClientDuplexStream<ClientFrame, ServerFrame>;
  private events: ConnectionEvents | undefined;

  constructor({ channel, metadata }: Dialled, events: ConnectionEvents) {
    this.channel = channel;
    this.metadata = metadata;
    this.events = events;
    this.stream = channel.makeBidiStreamRequest(
      SESSION,
      (frame: ClientFrame) => Buffer.from(toBinary(ClientFrameSchema, frame)),
      (content: Buffer) => fromBinary(ServerFrameSchema, content),
      metadata,
    );
    this.stream.on("data", (frame: ServerFrame) => this.events?.frame(frame));
    this.stream.on("drain", () => {
      this.hasRoom = true;
      this.events?.drained();
    });
    this.stream.on("error", (error: ServiceError) => this.tellEnd(failureOf(error), isOfNode(error)));
    this.stream.on("end", () => {
      this.tellEnd(create(FailureSchema, { message: "the stream ended", retryable: true }), false);
    });
  }

  send(frame: ClientFrame): void {
    this.hasRoom = this.stream.write(frame);
  }

  /** Asks the node whether it is there. The answer, if one comes, is told as `heard`. */
  ping(): void {
    this.channel.makeUnaryRequest(PING, bytes, bytes, NOTHING, this.metadata, (error) => {
      if (error === null || (error.code !== status.UNAVAILABLE && error.code !== status.CANCELLED)) {
        this.events?.heard();
      }
    });
  }

  /** With a farewell, the node knows that the session goes on elsewhere. */
  leave(withFarewell: boolean): void {
    this.events = undefined;
    if (!withFarewell) {
      this.stream.cancel();
      this.channel.close();
      return;
    }
    this.stream.write(create(ClientFrameSchema));
    this.stream.end();
    // To hang up earlier could overtake the farewell.
    const close = () => {
      clearTimeout(giveUp);
      this.stream.cancel();
      this.channel.close();
    };
    const giveUp = setTimeout(close, FAREWELL_TIMEOUT_MS);
    this.stream.on("end", close);
    this.stream.on("error", close);
  }

  private tellEnd(failure: Failure, isFromNode: boolean): void {
    const { events } = this;
    this.events = undefined;
    this.channel.close();
    events?.ended(failure, isFromNode);
  }
}

/** Whether a node said why the call or the stream ended. */
export function isOfNode({ metadata }: ServiceError): boolean {
  return metadata !== undefined && metadata.get("holdfast-reason").length > 0;
}

/** What a status says, as a node would say it on the stream. */
export function failureOf({ code, details, message, metadata }: ServiceError): Failure {
  const told = (key: string) => metadata?.get(`holdfast-${key}`)[0]?.toString();
  const toldNumber = (key: string) => told(key)?.match(/^\d{1,18}$/)?.[0] ?? 0;
  const name = told("reason")?.toUpperCase() as keyof typeof Reason | undefined;
  const isOfNode = name !== undefined;
  const unnamed = {
    [status.UNAUTHENTICATED]: Reason.UNAUTHENTICATED,
    [status.PERMISSION_DENIED]: Reason.PERMISSION_DENIED,
  };
  return create(FailureSchema, {
    reason: isOfNode ? (Reason[name] ?? Reason.UNSPECIFIED) : (unnamed[code as keyof typeof unnamed] ?? 0),
    message: details || message,
    retryable: isOfNode ? told("retryable") === "true" : !FINAL.has(code),
    mayHaveHappened: isOfNode ? told("may-have-happened") === "true" : true,
    leader: told("leader") ?? "",
    retryAfterMs: BigInt(toldNumber("retry-after-ms")),
    mapEpoch: BigInt(toldNumber("map-epoch")),
    group: Number(toldNumber("group")),
  });
}
