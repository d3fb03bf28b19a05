#!/bin/sh
# Writes holdfastv1/*.pb.go from the files in proto/holdfast/v1. Needs protoc (Debian: protobuf-compiler).
# Usage: generate.sh [DIRECTORY]; without one it writes where the files are.
set -eu
cd "$(dirname "$0")"
out=${1:-$PWD}
root=../..
tools=$(mktemp -d)
trap 'chmod -R u+w "$tools"; rm -rf "$tools"' EXIT
export GOFLAGS=-mod=mod
GOBIN=$tools go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.10
GOBIN=$tools go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.5.1
mkdir -p "$out"
PATH=$tools:$PATH protoc --proto_path="$root/proto" \
    --go_out="$out" --go_opt=module=holdfast/sdks/go \
    --go-grpc_out="$out" --go-grpc_opt=module=holdfast/sdks/go \
    holdfast/v1/holdfast.proto holdfast/v1/election.proto holdfast/v1/watch.proto
# The version of protoc says nothing about the code.
sed -i -E '/^\/\/ (-|\t)[ \t]*protoc +v/d' "$out"/holdfastv1/*.pb.go
