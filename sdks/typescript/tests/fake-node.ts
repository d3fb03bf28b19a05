/** A node whose answers are the test's own, for what no cluster does yet: its groups exchange no slots. */

import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { type handleBidiStreamingCall, Server, ServerCredentials, type ServerDuplexStream } from "@grpc/grpc-js";
import {
  type ClientFrame,
  ClientFrameSchema,
  type OpenSessionResponseSchema,
  type Operation,
  type ServerFrame,
  ServerFrameSchema,
} from "#dist/gen/holdfast/v1/holdfast_pb.js";
import type { Result } from "./player.js";
import { freePort } from "./server.js";

type Kind = NonNullable<Operation["kind"]["case"]>;
type Sent<K> = Extract<Operation["kind"], { case: K }>["value"];

/** What came, in order, for one reader. */
class Inbox<T> {
  private readonly items: T[] = [];
  private readonly readers: ((item: T) => void)[] = [];

  put(item: T): void {
    const reader = this.readers.shift();
    if (reader === undefined) this.items.push(item);
    else reader(item);
  }

  take(): Promise<T> {
    const item = this.items.shift();
    return item === undefined ? new Promise((resolve) => this.readers.push(resolve)) : Promise.resolve(item);
  }

  get isEmpty(): boolean {
    return this.items.length === 0;
  }
}

/** A stream of a session. */
export class FakeStream {
  /** Undefined is the end of the client's side. */
  private readonly frames = new Inbox<ClientFrame | undefined>();

  constructor(private readonly call: ServerDuplexStream<ClientFrame, ServerFrame>) {
    call.on("data", (frame: ClientFrame) => this.frames.put(frame));
    call.on("end", () => {
      this.frames.put(undefined);
      call.end();
    });
    call.on("error", () => this.frames.put(undefined));
  }

  frame(): Promise<ClientFrame | undefined> {
    return this.frames.take();
  }

  get isSilent(): boolean {
    return this.frames.isEmpty;
  }

  /** The one operation of the next frame, which has to be of this kind. */
  async next<K extends Kind>(kind: K): Promise<Sent<K>> {
    const operations = (await this.frame())?.operations;
    assert.deepEqual(
      operations?.map((operation) => operation.kind.case),
      [kind],
    );
    return operations?.[0]?.kind.value as unknown as Sent<K>;
  }

  send(frame: MessageInitShape<typeof ServerFrameSchema>): void {
    this.call.write(create(ServerFrameSchema, frame));
  }

  answer(requestId: bigint, result: Result): void {
    this.send({ answers: [{ requestId, result }] });
  }

  grant(requestId: bigint, name: string, token: bigint): void {
    const value = { name, token, guarantee: 1, mode: 1, acquireRequestId: requestId };
    this.answer(requestId, { case: "acquire", value: { outcome: { case: "granted", value } } });
  }
}

/** What a node answers to a hello. */
export type Welcome = MessageInitShape<typeof OpenSessionResponseSchema>;

export class FakeNode {
  private readonly streams = new Inbox<FakeStream>();

  private constructor(readonly address: string) {}

  static async start(context: TestContext): Promise<FakeNode> {
    const server = new Server();
    const session: handleBidiStreamingCall<ClientFrame, ServerFrame> = (call) => node.streams.put(new FakeStream(call));
    const definition = {
      Session: {
        path: "/holdfast.v1.LockService/Session",
        requestStream: true,
        responseStream: true,
        requestSerialize: (frame: ClientFrame) => Buffer.from(toBinary(ClientFrameSchema, frame)),
        requestDeserialize: (content: Buffer) => fromBinary(ClientFrameSchema, content),
        responseSerialize: (frame: ServerFrame) => Buffer.from(toBinary(ServerFrameSchema, frame)),
        responseDeserialize: (content: Buffer) => fromBinary(ServerFrameSchema, content),
      },
    } as const;
    server.addService(definition, { Session: session });
    const address = `127.0.0.1:${await freePort()}`;
    const node = new FakeNode(address);
    await new Promise<void>((listening, reject) => {
      server.bindAsync(address, ServerCredentials.createInsecure(), (error) => (error ? reject(error) : listening()));
    });
    context.after(() => server.forceShutdown());
    return node;
  }

  /** The next stream, and its hello. */
  async greet(): Promise<{ stream: FakeStream; hello: Operation["kind"] }> {
    const stream = await this.streams.take();
    const hello = (await stream.frame())?.operations[0]?.kind;
    assert.ok(hello?.case === "open" || hello?.case === "resume");
    return { stream, hello };
  }

  /** The next stream, whose hello is answered. */
  async welcome(told: Welcome): Promise<{ stream: FakeStream; hello: Sent<"open">; isResume: boolean }> {
    const { stream, hello } = await this.greet();
    assert.ok(hello.case === "open" || hello.case === "resume");
    stream.answer(hello.value.requestId, { case: hello.case, value: told });
    return { stream, hello: hello.value as Sent<"open">, isResume: hello.case === "resume" };
  }

  get hasNoStream(): boolean {
    return this.streams.isEmpty;
  }
}
