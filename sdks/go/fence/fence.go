// Package fence has the rule by which a resource lets a write pass: for resources that check tokens in Go.
//
// The check must be one step with the write that it protects, and the mark must be as durable as the data. For
// PostgreSQL use the package hfsql or the module hfpgx, for Redis the module hfredis.
package fence

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"
)

// PostgresMigration creates schema, table and functions in PostgreSQL. It can be run again.
//
//go:embed fence.sql
var PostgresMigration string

// RedisScript checks a token and runs one command, in one step.
//
//go:embed fence.lua
var RedisScript string

var fullForm = regexp.MustCompile(`^hf1\.([LB])\.([0-9a-f]{16})\.(0|[1-9][0-9]{0,18})$`)

// ErrRefused is every refusal, for errors.Is. See [RefusedError].
var ErrRefused = errors.New("the resource refused the fencing token")

// Kind says why a token was refused.
type Kind string

const (
	// Stale means that a later token has been seen: the lock was lost.
	Stale Kind = "stale"
	// Missing means that the write came without a token.
	Missing Kind = "missing"
	// Malformed means that the token cannot be read.
	Malformed Kind = "malformed"
	// Zero is a number that is never granted.
	Zero Kind = "zero"
	// OtherResource means that the token belongs to another lock.
	OtherResource Kind = "other_resource"
	// BestEffort means that the token is of the efficiency tier, and the resource takes none.
	BestEffort Kind = "best_effort"
	// NotBestEffort means that the resource takes tokens of the efficiency tier only.
	NotBestEffort Kind = "not_best_effort"
	// NotFenceable means that the token is empty, as that of a permit is.
	NotFenceable Kind = "not_fenceable"
)

// RefusedError says why a resource refused a token.
type RefusedError struct {
	Kind    Kind
	Message string
	// Highest is the token that has been seen, if the refused one is stale.
	Highest uint64
}

func (e *RefusedError) Error() string { return e.Message }

// Is makes the error an [ErrRefused].
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

func refused(kind Kind, words string, values ...any) error {
	return &RefusedError{Kind: kind, Message: fmt.Sprintf(words, values...)}
}

// StaleError returns the refusal of a token that is out of date.
func StaleError(claim Claim, highest uint64) error {
	return &RefusedError{Kind: Stale, Highest: highest, Message: fmt.Sprintf(
		"token %d for %q is out of date, %d has been seen: the lock was lost. Do not send this write again: take the lock"+
			" again, and begin with reading", claim.Token, claim.Resource, highest,
	)}
}

// Token is what a fence helper needs of a guard. *holdfast.Guard is one.
type Token interface {
	Name() string
	Fence() (string, error)
}

// Claim is a token that belongs to the resource. Whether it is out of date is not known yet.
type Claim struct {
	Resource string
	Token    uint64
}

// Accepts says which tier's tokens a resource takes.
type Accepts int

const (
	// Linearizable tokens are those of the correctness tier.
	Linearizable Accepts = iota
	// BestEffortTokens are those of the efficiency tier. The numbers of the two tiers cannot be compared.
	BestEffortTokens
)

// Admit says all that can be said of a token without knowing any other; nil is a write without one. The resource is the
// name that the lock has. It must come from the resource itself, not from the caller.
func Admit(fence *string, resource string, accepts Accepts) (Claim, error) {
	switch {
	case fence == nil:
		return Claim{}, refused(Missing, "the write to %q came without a fencing token: send guard.Fence()", resource)
	case *fence == "":
		return Claim{}, refused(NotFenceable,
			"the fencing token for %q is empty, as that of a permit is: lock exclusively", resource)
	}
	parts := fullForm.FindStringSubmatch(*fence)
	var token uint64
	var err error
	if parts != nil {
		token, err = strconv.ParseUint(parts[3], 10, 63)
	}
	if parts == nil || err != nil {
		return Claim{}, refused(Malformed,
			"the fencing token for %q cannot be read: send guard.Fence() as it was granted", resource)
	}
	if token == 0 {
		return Claim{}, refused(Zero, "the fencing token for %q has the number 0, which is never granted", resource)
	}
	if parts[2] != nameHash(resource) {
		return Claim{}, refused(OtherResource,
			"the fencing token belongs to another resource than %q: take that lock", resource)
	}
	if isBestEffort := parts[1] == "B"; isBestEffort && accepts != BestEffortTokens {
		return Claim{}, refused(BestEffort,
			"%q takes no best-effort token: take the lock in the correctness tier", resource)
	} else if !isBestEffort && accepts == BestEffortTokens {
		return Claim{}, refused(NotBestEffort, "%q takes tokens of the efficiency tier only", resource)
	}
	return Claim{Resource: resource, Token: token}, nil
}

func nameHash(name string) string {
	digest := sha256.Sum256([]byte(name))
	return hex.EncodeToString(digest[:8])
}

// HighWaterMark is the highest token that a resource in this process has seen. Goroutines can share it.
type HighWaterMark struct {
	mu    sync.Mutex
	token uint64
}

// NewHighWaterMark returns a mark that stands at a token.
func NewHighWaterMark(token uint64) *HighWaterMark { return &HighWaterMark{token: token} }

// Raise lets the claim pass and remembers it, or fails with a *[RefusedError].
func (m *HighWaterMark) Raise(claim Claim) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if claim.Token < m.token {
		return StaleError(claim, m.token)
	}
	m.token = claim.Token
	return nil
}

// Token returns where the mark stands.
func (m *HighWaterMark) Token() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.token
}
