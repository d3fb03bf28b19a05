package hfredis_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"holdfast/sdks/go/fence"
	"holdfast/sdks/go/hfredis"
	"holdfast/sdks/go/internal/testservers"
)

func token(name string, number uint64) string {
	digest := sha256.Sum256([]byte(name))
	return fmt.Sprintf("hf1.L.%x.%d", digest[:8], number)
}

func TestALateWriteIsRefused(t *testing.T) {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: testservers.Redis(t)})
	defer client.Close()
	key, err := hfredis.NewKey("order:42")
	if err != nil {
		t.Fatal(err)
	}
	// Numbers above 2^53, which Lua does not tell apart as numbers.
	const first = 1<<62 + 1
	if told, err := key.RunWithToken(ctx, client, token("order:42", first+1), "SET", key.Data, "new"); err != nil || told != "OK" {
		t.Fatal(told, err)
	}
	_, err = key.RunWithToken(ctx, client, token("order:42", first), "SET", key.Data, "late")
	var refused *fence.RefusedError
	if !errors.As(err, &refused) || refused.Kind != fence.Stale || refused.Highest != first+1 {
		t.Fatal(err)
	}
	if told, err := key.RunWithToken(ctx, client, token("order:42", first+1), "GET", key.Data); err != nil || told != "new" {
		t.Fatal(told, err)
	}
	if told, err := key.RunWithToken(ctx, client, token("order:42", first+1), "GETDEL", key.Data); err != nil || told != "new" {
		t.Fatal(told, err)
	}
	if told, err := key.RunWithToken(ctx, client, token("order:42", first+1), "GET", key.Data); err != nil || told != nil {
		t.Fatal(told, err)
	}
	_, err = key.RunWithToken(ctx, client, token("order:43", first+2), "SET", key.Data, "other")
	if !errors.Is(err, fence.ErrRefused) {
		t.Fatal(err)
	}
}

func TestTheMarkLiesInTheHashSlotOfItsKey(t *testing.T) {
	for _, wrong := range []string{"a{}b", "a{b", "a}b"} {
		if _, err := hfredis.NewKey(wrong); err == nil {
			t.Fatal(wrong)
		}
	}
	for _, right := range []string{"a", "{a}b", "x{a}y{b}"} {
		if _, err := hfredis.NewKey(right); err != nil {
			t.Fatal(err)
		}
	}
}
