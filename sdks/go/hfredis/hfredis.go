// Package hfredis fences writes to Redis through go-redis: one script checks the token and runs one command.
//
//	key, err := hfredis.NewKey("order:42")
//	_, err = key.Run(ctx, client, guard, "SET", key.Data, "paid")
//
// The mark lies beside the data, in the same hash slot. It must be as durable as the data: use `appendonly yes` and
// `appendfsync always` where a late write is damage, and never evict marks.
package hfredis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"holdfast/sdks/go/fence"
)

const markPrefix = "holdfast:mark:"

var script = redis.NewScript(fence.RedisScript)

// Key is the key of the data, and beside it that of its mark.
type Key struct {
	Data string
	// Resource is the name of the lock; by default the key.
	Resource string
	// Accepts says which tier's tokens pass; by default those of the correctness tier.
	Accepts fence.Accepts
	mark    string
}

// NewKey returns the fenced key of this name.
func NewKey(data string) (*Key, error) {
	key := &Key{Data: data, Resource: data}
	_, after, _ := strings.Cut(data, "{")
	tag, _, isClosed := strings.Cut(after, "}")
	switch {
	case tag != "" && isClosed:
		// What stands before it has no brace, so the first tag of the mark's key is that of the data's.
		key.mark = markPrefix + data
	case strings.ContainsAny(data, "{}"):
		return nil, fmt.Errorf("the key %q has braces that are no hash tag: write {tag}rest, or leave them out", data)
	default:
		key.mark = markPrefix + "{" + data + "}"
	}
	return key, nil
}

// Run runs one command that touches this key, and others of the same hash tag, if the token passes. It fails with a
// *[fence.RefusedError] otherwise, and with ErrLost if the lock is lost. A command that answers nil answers nil here.
func (k *Key) Run(ctx context.Context, client redis.Scripter, guard fence.Token, command ...any) (any, error) {
	token, err := guard.Fence()
	if err != nil {
		return nil, err
	}
	return k.RunWithToken(ctx, client, token, command...)
}

// RunWithToken is as [Key.Run], for a token that came from elsewhere.
func (k *Key) RunWithToken(ctx context.Context, client redis.Scripter, token string, command ...any) (any, error) {
	claim, err := fence.Admit(&token, k.Resource, k.Accepts)
	if err != nil {
		return nil, err
	}
	arguments := append([]any{strconv.FormatUint(claim.Token, 10)}, command...)
	told, err := script.Run(ctx, client, []string{k.mark, k.Data}, arguments...).Slice()
	if err != nil {
		return nil, err
	}
	if len(told) == 0 {
		return nil, errors.New("the script of the fence answered nothing; is this Redis?")
	}
	if passed, _ := told[0].(int64); passed != 1 {
		highest, _ := strconv.ParseUint(fmt.Sprint(told[1:]...), 10, 64)
		return nil, fence.StaleError(claim, highest)
	}
	// Redis cuts a list at a nil.
	if len(told) < 2 {
		return nil, nil
	}
	return told[1], nil
}
