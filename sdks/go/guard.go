package holdfast

import (
	"context"
	"sync"
	"time"

	pb "holdfast/sdks/go/holdfastv1"
	"holdfast/sdks/go/internal/clock"
	"holdfast/sdks/go/internal/core"
	"holdfast/sdks/go/internal/engine"
)

// held has locks that were granted together. If one of them is lost, none gives a token any more.
type held struct {
	// engine is that of the session that has the locks.
	engine *engine.Engine
	holds  []*core.Hold
	parent context.Context
	actor  uint64

	mu         sync.Mutex
	isReleased bool
	ctx        context.Context
	cancel     context.CancelCauseFunc
	// ended is closed when the locks are lost or released; nil until a caller wants to know.
	ended chan struct{}
	end   sync.Once
}

// Check fails with [ErrLost] unless the lock is certainly held. It reads the clock, and asks no node.
func (h *held) Check() error {
	_, err := h.read()
	return err
}

func (h *held) read() ([]core.Held, error) {
	if h.wasReleased() {
		return nil, &LostError{Reason: "released"}
	}
	now := clock.Now()
	told := make([]core.Held, 0, len(h.holds))
	for _, hold := range h.holds {
		one, failure := hold.Read(now)
		if failure != nil {
			return nil, errorOf(failure)
		}
		told = append(told, one)
	}
	return told, nil
}

func (h *held) wasReleased() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isReleased
}

// Context returns a context for the work under the lock. It ends when the lock is lost or released, with a *[LostError]
// as its cause, and with the context of the Lock call. Lock calls with it belong to the guard's actor.
func (h *held) Context() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx == nil {
		h.ctx, h.cancel = context.WithCancelCause(context.WithValue(h.parent, actorKey{}, h.actor))
		cancel := h.cancel
		if h.isReleased {
			cancel(&LostError{Reason: "released"})
			return h.ctx
		}
		h.holds[0].Loss.OnReport(func(reason string) { cancel(&LostError{Reason: reason}) })
		h.engine.Watch(h.holds)
	}
	return h.ctx
}

// WaitLost waits until the lock is lost or released, and returns why: a *[LostError]. If the context ends first, it
// returns an [ErrCancelled].
func (h *held) WaitLost(ctx context.Context) error {
	ended := h.endSignal()
	for {
		if err := h.Check(); err != nil {
			return err
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return cancelled(ctx)
		}
	}
}

func (h *held) endSignal() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended == nil {
		h.ended = make(chan struct{})
		h.holds[0].Loss.OnReport(func(string) { h.end.Do(func() { close(h.ended) }) })
		h.engine.Watch(h.holds)
	}
	return h.ended
}

// ValidFor returns for how long the lock is certainly held, as far as is known now.
func (h *held) ValidFor() time.Duration {
	if h.Check() != nil {
		return 0
	}
	until := core.Never
	for _, hold := range h.holds {
		until = min(until, hold.ValidUntil())
	}
	return max(0, time.Duration(until-clock.Now()))
}

// IsAtRisk says whether a third of the time is left, or less: heartbeats go unanswered, or the hold's own time runs out.
func (h *held) IsAtRisk() bool {
	if h.Check() != nil {
		return true
	}
	from := core.Never
	for _, hold := range h.holds {
		from = min(from, hold.AtRiskFrom())
	}
	return from <= clock.Now()
}

// Release gives the lock back. It fails with [ErrLost] if the lock was lost before. If the context ends first, or no node
// serves, the client goes on to release the lock as soon as it can. A second Release does nothing.
func (h *held) Release(ctx context.Context) error {
	h.mu.Lock()
	wasReleased := h.isReleased
	h.isReleased = true
	cancel := h.cancel
	if h.ended != nil {
		h.end.Do(func() { close(h.ended) })
	}
	h.mu.Unlock()
	if wasReleased {
		return nil
	}
	if cancel != nil {
		defer cancel(&LostError{Reason: "released"})
	}
	var first error
	for _, err := range h.releaseEach(ctx) {
		if err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (h *held) releaseEach(ctx context.Context) []error {
	errs := make([]error, len(h.holds))
	if len(h.holds) == 1 {
		errs[0] = h.releaseOne(ctx, h.holds[0])
		return errs
	}
	var all sync.WaitGroup
	for place, hold := range h.holds {
		all.Add(1)
		go func() {
			defer all.Done()
			errs[place] = h.releaseOne(ctx, hold)
		}()
	}
	all.Wait()
	return errs
}

func (h *held) releaseOne(ctx context.Context, hold *core.Hold) error {
	loss := hold.Loss.Reason()
	outcome, isComplete := h.engine.Run(ctx, &core.Release{Hold: hold}, engine.Options{})
	if _, err := resultOf(ctx, outcome, isComplete); err != nil {
		return err
	}
	if loss == "" && outcome.Released != pb.ReleaseOutcome_RELEASE_OUTCOME_RELEASED {
		if loss = hold.Loss.Reason(); loss == "" {
			loss = "ended"
		}
	}
	if loss != "" {
		return &LostError{Reason: loss}
	}
	return nil
}

// Guard is a lock that is held.
type Guard struct{ *held }

func (g *Guard) hold() *core.Hold { return g.holds[0] }

// Name returns the name of the lock.
func (g *Guard) Name() string { return g.hold().Name }

// Token returns the fencing token. It reads the clock, and fails with [ErrLost] once the lock may have ended.
func (g *Guard) Token() (uint64, error) {
	told, err := g.read()
	if err != nil {
		return 0, err
	}
	return told[0].Token, nil
}

// Fence returns the token in full form, which the protected resource checks; empty for a permit. It reads the clock, and
// fails with [ErrLost] once the lock may have ended.
func (g *Guard) Fence() (string, error) {
	told, err := g.read()
	if err != nil {
		return "", err
	}
	return told[0].Fence, nil
}

// Mode says how a lock is held.
type Mode string

const (
	// ModeExclusive is held by one.
	ModeExclusive Mode = "exclusive"
	// ModeShared is held by readers.
	ModeShared Mode = "shared"
	// ModePermit is one of several.
	ModePermit Mode = "permit"
)

func modeOf(mode pb.Mode) Mode {
	switch mode {
	case pb.Mode_MODE_SHARED:
		return ModeShared
	case pb.Mode_MODE_PERMIT:
		return ModePermit
	default:
		return ModeExclusive
	}
}

// Mode says how the lock is held.
func (g *Guard) Mode() Mode { return modeOf(g.hold().Held().Mode) }

// IsBestEffort says whether the lock is of the efficiency tier, where two holders can overlap for a moment.
func (g *Guard) IsBestEffort() bool { return g.hold().IsBestEffort }

// Since returns the age to ask for the next lock of the same transaction with, if the lock was asked for with one.
func (g *Guard) Since() (uint64, bool) {
	if since := g.hold().SinceMs; since != nil {
		return *since, true
	}
	return 0, false
}

// Renew starts the hold's own TTL again, with another TTL if one is given. A hold without a TTL needs no renewal.
func (g *Guard) Renew(ctx context.Context, ttl ...time.Duration) error {
	request := &core.Renew{Hold: g.hold()}
	if len(ttl) > 0 {
		request.TTLMs = ms(&ttl[0])
	}
	return g.ask(ctx, request, 0)
}

// ConvertToShared lets other readers in. The token stays.
func (g *Guard) ConvertToShared(ctx context.Context) error {
	return g.ask(ctx, &core.Convert{Hold: g.hold(), Mode: pb.Mode_MODE_SHARED}, 0)
}

// ConvertToExclusive waits for the other readers to leave. The hold has another token then.
func (g *Guard) ConvertToExclusive(ctx context.Context, wait time.Duration) error {
	wait = min(max(wait, 0), waitMax)
	return g.ask(ctx, &core.Convert{Hold: g.hold(), Mode: pb.Mode_MODE_EXCLUSIVE, WaitMs: *ms(&wait)}, wait)
}

// Proclaim changes the metadata that others see.
func (g *Guard) Proclaim(ctx context.Context, metadata []byte) error {
	if err := checkMetadata(metadata); err != nil {
		return err
	}
	return g.ask(ctx, &core.Proclaim{Hold: g.hold(), Metadata: metadata}, 0)
}

// Transfer hands an exclusive lock to a session that waits for it, named by its public id, ahead of all others. It
// returns the token of the other. From the call on the guard gives no token, unless the transfer is refused.
func (g *Guard) Transfer(ctx context.Context, publicSession string) (uint64, error) {
	if err := g.Check(); err != nil {
		return 0, err
	}
	request := &core.Transfer{Hold: g.hold(), ToPublicSession: publicSession}
	outcome, isComplete := g.engine.Run(ctx, request, engine.Options{})
	outcome, err := resultOf(ctx, outcome, isComplete)
	return outcome.Token, err
}

func (g *Guard) ask(ctx context.Context, request core.Request, wait time.Duration) error {
	if err := g.Check(); err != nil {
		return err
	}
	outcome, isComplete := g.engine.Run(ctx, request, engine.Options{Wait: wait})
	_, err := resultOf(ctx, outcome, isComplete)
	return err
}

// GuardAll is several locks that are held together.
type GuardAll struct{ *held }

// Names returns the names of the locks, in the order in which they were asked for.
func (g *GuardAll) Names() []string {
	names := make([]string, 0, len(g.holds))
	for _, hold := range g.holds {
		names = append(names, hold.Name)
	}
	return names
}

// Tokens returns the fencing tokens, in the order in which the locks were asked for. It fails with [ErrLost] once one of
// the locks may have ended.
func (g *GuardAll) Tokens() ([]uint64, error) {
	told, err := g.read()
	tokens := make([]uint64, 0, len(told))
	for _, one := range told {
		tokens = append(tokens, one.Token)
	}
	return tokens, err
}

// Fences returns the tokens in full form, as Tokens does.
func (g *GuardAll) Fences() ([]string, error) {
	told, err := g.read()
	fences := make([]string, 0, len(told))
	for _, one := range told {
		fences = append(fences, one.Fence)
	}
	return fences, err
}
