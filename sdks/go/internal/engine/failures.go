package engine

import (
	"errors"
	"io"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "holdfast/sdks/go/holdfastv1"
)

const reasonKey = "holdfast-reason"

// isOfNode tells whether a node said why a call or a stream ended. Otherwise a proxy may have, or this library.
func isOfNode(trailer metadata.MD) bool { return first(trailer, reasonKey) != "" }

// FailureOf returns why a call or a stream ended, as a node says it in the metadata.
func FailureOf(err error, trailer metadata.MD) *pb.Failure {
	if errors.Is(err, io.EOF) {
		return &pb.Failure{Message: "the stream ended", Retryable: true}
	}
	told, _ := status.FromError(err)
	failure := &pb.Failure{Message: told.Message(), Leader: first(trailer, "holdfast-leader")}
	if failure.Message == "" {
		failure.Message = err.Error()
	}
	if reason := first(trailer, reasonKey); reason != "" {
		failure.Reason = pb.Reason(pb.Reason_value["REASON_"+strings.ToUpper(reason)])
		failure.Retryable = first(trailer, "holdfast-retryable") == "true"
		failure.MayHaveHappened = first(trailer, "holdfast-may-have-happened") == "true"
		failure.RetryAfterMs = number(trailer, "holdfast-retry-after-ms")
		failure.MapEpoch = number(trailer, "holdfast-map-epoch")
		failure.Group = uint32(number(trailer, "holdfast-group"))
		return failure
	}
	// It did not come from a node.
	failure.MayHaveHappened = true
	switch told.Code() {
	case codes.Unauthenticated:
		failure.Reason = pb.Reason_REASON_UNAUTHENTICATED
	case codes.PermissionDenied:
		failure.Reason = pb.Reason_REASON_PERMISSION_DENIED
	case codes.InvalidArgument, codes.OutOfRange, codes.Unimplemented:
	default:
		failure.Retryable = true
	}
	return failure
}

// number is 0 if there is none.
func number(trailer metadata.MD, key string) uint64 {
	parsed, _ := strconv.ParseUint(first(trailer, key), 10, 64)
	return parsed
}

func first(trailer metadata.MD, key string) string {
	if values := trailer.Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}
