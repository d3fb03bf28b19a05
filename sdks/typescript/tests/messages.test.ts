import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { file_holdfast_v1_election } from "#dist/gen/holdfast/v1/election_pb.js";
import { file_holdfast_v1_holdfast } from "#dist/gen/holdfast/v1/holdfast_pb.js";
import { file_holdfast_v1_watch } from "#dist/gen/holdfast/v1/watch_pb.js";
import { ROOT } from "./server.js";

const FILES = [file_holdfast_v1_election, file_holdfast_v1_holdfast, file_holdfast_v1_watch];

function typeOf(field: DescField): string {
  const scalar = field.scalar === undefined ? undefined : ScalarType[field.scalar].toLowerCase();
  return scalar ?? field.message?.name ?? field.enum?.name ?? "?";
}

function lineOf(message: DescMessage, field: DescField): string {
  const isOptional = field.proto.proto3Optional;
  const label = field.fieldKind === "list" ? "repeated " : isOptional ? "optional " : "";
  const oneof = field.oneof === undefined ? "" : ` oneof ${field.oneof.name}`;
  return `message ${message.typeName} ${field.number} ${field.name} ${label}${typeOf(field)}${oneof}`;
}

test("the generated messages are those of the recorded API: otherwise `npm run generate`", () => {
  const messages = FILES.flatMap((file) => file.messages);
  const enums = FILES.flatMap((file) => file.enums);
  const generated = [
    ...messages.flatMap((message) => message.fields.map((field) => lineOf(message, field))),
    ...enums.flatMap((it) => it.values.map((value) => `enum ${it.typeName} ${value.number} ${value.name}`)),
  ];
  const known = new Set([...messages, ...enums].map((it) => it.typeName));
  const recorded = readFileSync(new URL("proto/recorded-api.txt", ROOT), "utf8")
    .split("\n")
    .filter((line) => known.has(line.split(" ")[1] ?? ""));
  assert.ok(recorded.length > 300);
  assert.deepEqual(generated.sort(), recorded.sort());
});
