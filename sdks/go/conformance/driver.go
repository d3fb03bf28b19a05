package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	holdfast "holdfast/sdks/go"
)

type request struct {
	ID    uint64            `json:"id"`
	Op    string            `json:"op"`
	As    string            `json:"as"`
	Kind  string            `json:"kind"`
	Cases []json.RawMessage `json:"cases"`
	Call  uint64            `json:"call"`

	Endpoints        []string `json:"endpoints"`
	CA               string   `json:"ca"`
	Cert             string   `json:"cert"`
	Key              string   `json:"key"`
	AuthFile         string   `json:"auth_file"`
	RequestTimeoutMs *int64   `json:"request_timeout_ms"`
	WhenNeeded       bool     `json:"when_needed"`

	Client string `json:"client"`
	Guard  string `json:"guard"`
	Name   string `json:"name"`
	Value  string `json:"value"`
	To     string `json:"to"`
	Prefix string `json:"prefix"`
	Watch  string `json:"watch"`
	// Snapshot is true unless it is said.
	Snapshot *bool `json:"snapshot"`

	Names     []string `json:"names"`
	Mode      string   `json:"mode"`
	Permits   uint32   `json:"permits"`
	WaitMs    *int64   `json:"wait_ms"`
	TTLMs     *int64   `json:"ttl_ms"`
	MaxHoldMs *int64   `json:"max_hold_ms"`
	AutoRenew *bool    `json:"auto_renew"`
	Actor     *uint64  `json:"actor"`
	Policy    string   `json:"policy"`
	Tier      string   `json:"tier"`
	Reentrant bool     `json:"reentrant"`
	Since     string   `json:"since"`
}

type answer map[string]any

var errUnsupported = errors.New("no request")

// driver keeps what the suite has named.
type driver struct {
	mu      sync.Mutex
	out     *json.Encoder
	clients map[string]*holdfast.Client
	// guards are *holdfast.Guard, *holdfast.GuardAll or *holdfast.Leadership.
	guards map[string]any
	// calls are those that can be cancelled.
	calls   map[uint64]context.CancelFunc
	watches map[string]*items
}

func newDriver(out io.Writer) *driver {
	return &driver{
		out:     json.NewEncoder(out),
		clients: map[string]*holdfast.Client{},
		guards:  map[string]any{},
		calls:   map[uint64]context.CancelFunc{},
		watches: map[string]*items{},
	}
}

// handle answers what needs no waiting at once, and the rest in a goroutine.
func (d *driver) handle(it *request) {
	switch it.Op {
	case "hello", "vectors", "token", "cancel":
		d.reply(it, func() (answer, error) { return d.answerAtOnce(it) })
	default:
		ctx, cancel := context.WithCancel(context.Background())
		d.mu.Lock()
		d.calls[it.ID] = cancel
		d.mu.Unlock()
		go func() {
			d.reply(it, func() (answer, error) { return d.answer(ctx, it) })
			d.mu.Lock()
			delete(d.calls, it.ID)
			d.mu.Unlock()
			// What is held goes on: only a cancel ends the context of a guard.
			_ = cancel
		}()
	}
}

func (d *driver) reply(it *request, ask func() (answer, error)) {
	told, err := ask()
	line := answer{"id": it.ID, "ok": told}
	if err != nil {
		line = answer{"id": it.ID, "err": describe(err)}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.out.Encode(line); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (d *driver) answerAtOnce(it *request) (answer, error) {
	switch it.Op {
	case "hello":
		// A goroutine of the program does not run the library.
		return answer{"name": "go", "lacks": []string{"fork", "block"}}, nil
	case "vectors":
		var answers []any
		for _, one := range it.Cases {
			told, err := answerVector(it.Kind, one)
			if err != nil {
				return nil, err
			}
			answers = append(answers, told)
		}
		return answer{"answers": answers}, nil
	case "cancel":
		d.mu.Lock()
		defer d.mu.Unlock()
		if cancel := d.calls[it.Call]; cancel != nil {
			cancel()
		}
		return answer{}, nil
	default:
		guard, err := d.guard(it.Guard)
		if err != nil {
			return nil, err
		}
		return tokensOf(guard)
	}
}

func (d *driver) answer(ctx context.Context, it *request) (answer, error) {
	switch it.Op {
	case "connect":
		return d.connect(ctx, it)
	case "close":
		client, err := d.client(it)
		if err != nil {
			return nil, err
		}
		return answer{}, client.Close(ctx)
	case "acquire", "acquire_all", "campaign":
		return d.acquire(ctx, it)
	case "watch", "observe":
		return d.watch(it)
	case "next", "end_watch":
		return d.readWatch(it)
	case "release":
		return d.release(ctx, it)
	case "await_loss":
		return d.awaitLoss(ctx, it)
	case "renew", "convert", "transfer":
		guard, err := d.one(it.Guard)
		if err != nil {
			return nil, err
		}
		return change(ctx, guard, it)
	default:
		return nil, fmt.Errorf("%w %q", errUnsupported, it.Op)
	}
}

func (d *driver) connect(ctx context.Context, it *request) (answer, error) {
	level := slog.LevelError
	if os.Getenv("DRIVER_LOG") != "" {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	options := []holdfast.Option{holdfast.WithLogger(log)}
	if it.TTLMs != nil {
		options = append(options, holdfast.WithTTL(span(it.TTLMs)))
	}
	if it.RequestTimeoutMs != nil {
		options = append(options, holdfast.WithRequestTimeout(span(it.RequestTimeoutMs)))
	}
	if it.CA != "" || it.Cert != "" {
		options = append(options, holdfast.WithTLS(holdfast.TLS{CA: it.CA, Cert: it.Cert, Key: it.Key}))
	}
	if it.AuthFile != "" {
		options = append(options, holdfast.WithAuthFile(it.AuthFile))
	}
	open := holdfast.Connect
	if it.WhenNeeded {
		open = func(_ context.Context, endpoints string, options ...holdfast.Option) (*holdfast.Client, error) {
			return holdfast.New(endpoints, options...)
		}
	}
	client, err := open(ctx, strings.Join(it.Endpoints, ","), options...)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clients[it.As] = client
	return answer{}, nil
}

func (d *driver) acquire(ctx context.Context, it *request) (answer, error) {
	client, err := d.client(it)
	if err != nil {
		return nil, err
	}
	options, err := optionsOf(it)
	if err != nil {
		return nil, err
	}
	var guard any
	switch it.Op {
	case "acquire_all":
		guard, err = client.LockAll(ctx, it.Names, options...)
	case "campaign":
		guard, err = client.Election(it.Name).Lead(ctx, []byte(it.Value), options...)
	default:
		guard, err = client.Lock(ctx, it.Name, options...)
	}
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.guards[it.As] = guard
	d.mu.Unlock()
	told, err := tokensOf(guard)
	if it.Op == "campaign" && err == nil {
		told["epoch"] = told["token"]
	}
	return told, err
}

func optionsOf(it *request) ([]holdfast.LockOption, error) {
	var options []holdfast.LockOption
	if it.WaitMs != nil {
		options = append(options, holdfast.Wait(span(it.WaitMs)))
	}
	if it.TTLMs != nil {
		options = append(options, holdfast.TTL(span(it.TTLMs)))
	}
	if it.MaxHoldMs != nil {
		options = append(options, holdfast.MaxHold(span(it.MaxHoldMs)))
	}
	if it.AutoRenew != nil && !*it.AutoRenew {
		options = append(options, holdfast.WithoutRenewal())
	}
	if it.Actor != nil {
		options = append(options, holdfast.Actor(*it.Actor))
	}
	if it.Policy != "" {
		options = append(options, holdfast.WithPolicy(holdfast.Policy(it.Policy)))
	}
	if it.Tier == "efficiency" {
		options = append(options, holdfast.Efficiency())
	}
	if it.Reentrant {
		options = append(options, holdfast.Reentrant())
	}
	if it.Since != "" {
		since, err := strconv.ParseUint(it.Since, 10, 64)
		if err != nil {
			return nil, err
		}
		options = append(options, holdfast.Since(since))
	}
	switch it.Mode {
	case "shared":
		options = append(options, holdfast.Shared())
	case "permit":
		options = append(options, holdfast.Permits(it.Permits))
	}
	return options, nil
}

// guarded is what all guards can do.
type guarded interface {
	Release(context.Context) error
	WaitLost(context.Context) error
}

func (d *driver) release(ctx context.Context, it *request) (answer, error) {
	guard, err := d.guard(it.Guard)
	if err != nil {
		return nil, err
	}
	err = guard.Release(ctx)
	if errors.Is(err, holdfast.ErrLost) {
		return answer{"outcome": "expired"}, nil
	}
	return answer{"outcome": "released"}, err
}

func (d *driver) awaitLoss(ctx context.Context, it *request) (answer, error) {
	guard, err := d.guard(it.Guard)
	if err != nil {
		return nil, err
	}
	err = guard.WaitLost(ctx)
	var lost *holdfast.LostError
	if errors.As(err, &lost) {
		return answer{"reason": lost.Reason}, nil
	}
	return nil, err
}

func change(ctx context.Context, guard *holdfast.Guard, it *request) (answer, error) {
	switch {
	case it.Op == "renew" && it.TTLMs == nil:
		return answer{}, guard.Renew(ctx)
	case it.Op == "renew":
		return answer{}, guard.Renew(ctx, span(it.TTLMs))
	case it.Op == "convert" && it.Mode == "shared":
		return answer{}, guard.ConvertToShared(ctx)
	case it.Op == "convert":
		return answer{}, guard.ConvertToExclusive(ctx, span(it.WaitMs))
	default:
		token, err := guard.Transfer(ctx, it.To)
		return answer{"token": strconv.FormatUint(token, 10)}, err
	}
}

func tokensOf(guard any) (answer, error) {
	if all, is := guard.(*holdfast.GuardAll); is {
		tokens, err := all.Tokens()
		var told []string
		for _, token := range tokens {
			told = append(told, strconv.FormatUint(token, 10))
		}
		return answer{"tokens": told}, err
	}
	one, err := oneOf(guard)
	if err != nil {
		return nil, err
	}
	token, err := one.Token()
	if err != nil {
		return nil, err
	}
	fence, err := one.Fence()
	return answer{"token": strconv.FormatUint(token, 10), "fence": fence}, err
}

func oneOf(guard any) (*holdfast.Guard, error) {
	switch guard := guard.(type) {
	case *holdfast.Guard:
		return guard, nil
	case *holdfast.Leadership:
		return guard.Guard, nil
	default:
		return nil, errors.New("that are several locks")
	}
}

func (d *driver) client(it *request) (*holdfast.Client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if client := d.clients[it.Client]; client != nil {
		return client, nil
	}
	return nil, fmt.Errorf("no client %q", it.Client)
}

func (d *driver) guard(name string) (guarded, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if guard, is := d.guards[name].(guarded); is {
		return guard, nil
	}
	return nil, fmt.Errorf("no guard %q", name)
}

func (d *driver) one(name string) (*holdfast.Guard, error) {
	guard, err := d.guard(name)
	if err != nil {
		return nil, err
	}
	return oneOf(guard)
}

func span(ms *int64) time.Duration {
	if ms == nil {
		return 0
	}
	return time.Duration(*ms) * time.Millisecond
}

// describe tells an error in the words that all drivers share.
func describe(err error) answer {
	told := answer{"message": err.Error()}
	var lost *holdfast.LostError
	var rejected *holdfast.RejectedError
	var unavailable *holdfast.UnavailableError
	var deadlock *holdfast.DeadlockError
	var died *holdfast.DiedError
	switch {
	case errors.Is(err, holdfast.ErrCancelled):
		told["kind"] = "cancelled"
	case errors.As(err, &lost):
		told["kind"], told["reason"] = "lost", lost.Reason
	case errors.Is(err, holdfast.ErrUnauthenticated):
		told["kind"] = "unauthenticated"
	case errors.Is(err, holdfast.ErrPermissionDenied):
		told["kind"] = "permission_denied"
	case errors.Is(err, errUnsupported):
		told["kind"] = "unsupported"
	case errors.As(err, &rejected):
		told["kind"], told["reason"], told["retryable"] = "rejected", rejected.Reason, rejected.Retryable
	case errors.As(err, &unavailable):
		told["kind"], told["may_have_happened"] = "unavailable", unavailable.MayHaveHappened
	case errors.As(err, &deadlock):
		var links []answer
		for _, link := range deadlock.Cycle {
			links = append(links, answer{"session": link.Session, "actor": link.Actor, "waits_for": link.WaitsFor})
		}
		told["kind"], told["cycle"] = "deadlock", links
	case errors.As(err, &died):
		told["kind"], told["since"] = "died", strconv.FormatUint(died.Since, 10)
	case errors.Is(err, holdfast.ErrBusy):
		told["kind"] = "busy"
	case errors.Is(err, holdfast.ErrTimedOut):
		told["kind"] = "timed_out"
	case errors.Is(err, holdfast.ErrClosed):
		told["kind"] = "closed"
	case errors.Is(err, holdfast.ErrInvalidEndpoints), errors.Is(err, holdfast.ErrInvalidOptions):
		told["kind"] = "invalid"
	default:
		told["kind"] = "other"
	}
	return told
}
