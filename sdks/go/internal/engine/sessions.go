package engine

import (
	"context"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "holdfast/sdks/go/holdfastv1"
	"holdfast/sdks/go/internal/clock"
	"holdfast/sdks/go/internal/core"
)

// Sessions are those of a client: one in the root group, and one in each other group of the cluster whose locks it uses.
//
// Each has an engine, a stream, a lease and a leader of its own, so nothing that happens to one group reaches the sessions in
// others. The session in the root group is opened first, and its welcome tells the map. A session in another group is
// opened by the first acquire of a lock in that group. A cluster of one group tells no map, and then there is no other
// session.
type Sessions struct {
	config Config
	ids    sessionIDs
	root   *Engine

	// mu is taken under the lock of an engine, and never the other way round.
	mu     sync.Mutex
	routes core.Routes
	// isWelcome: a node has answered a hello, and has told whether there are several groups.
	isWelcome bool
	// hasRisen is closed when the epoch of the map has risen; nil until a request waits for that.
	hasRisen chan struct{}
	others   map[uint32]*Engine
	isClosed bool
}

// New returns sessions that are not open yet.
func New(config Config) *Sessions {
	ttl := time.Duration(config.Settings.GetTtlMs()) * time.Millisecond
	config.Security.patience = newHandshakePatience(ttl)
	s := &Sessions{config: config, others: map[uint32]*Engine{}}
	s.root = newEngine(config, s.ids.ofOneGroup(), s.learn)
	return s
}

// Root returns the session in the root group.
func (s *Sessions) Root() *Engine { return s.root }

// Acquire asks for new locks. It returns the session that has them. What [Engine.Run] says of the context holds here too.
func (s *Sessions) Acquire(
	ctx context.Context, request core.Request, options Options,
) (core.Outcome, *Engine, bool) {
	wait := options.Wait
	options.Until = s.root.deadline(wait)
	if !s.hasLearned() && s.root.Circuit() == core.CircuitClosed {
		if outcome, isComplete := s.learnFirst(ctx, options.Until); !isComplete || outcome.Failure != nil {
			return outcome, s.root, isComplete
		}
	}
	began := clock.Now()
	redirects := core.NewRedirects(mathrand.Float64)
	for {
		group, failure := s.groupOf(request)
		if failure != nil {
			return core.Outcome{Failure: failure}, s.root, true
		}
		session := s.open(group)
		if session == nil {
			return core.Outcome{Failure: &core.Failure{Kind: core.Closed}}, s.root, true
		}
		outcome, isComplete := session.Run(ctx, request, options)
		if !isComplete || !outcome.Failure.IsOfOtherGroup() {
			return outcome, session, isComplete
		}
		redirect := s.redirect(redirects, session, outcome.Failure, request, group)
		ends := options.Until
		if wait > 0 {
			ends = began.Add(wait)
		}
		redirect.Pause = min(redirect.Pause, max(0, time.Duration(ends-clock.Now())))
		if redirect.IsOver {
			return outcome, session, true
		}
		if !s.pause(ctx, redirect) {
			return core.Outcome{}, session, false
		}
		now := clock.Now()
		if wait > 0 {
			if options.Wait = wait - time.Duration(now-began); options.Wait <= 0 {
				return core.Outcome{Failure: &core.Failure{Kind: core.TimedOut}}, session, true
			}
			request = core.WithWait(request, options.Wait)
		}
		if options.Until <= now {
			return outcome, session, true
		}
	}
}

// learnFirst opens the session in the root group, whose welcome tells where each lock is. A request that is sent before
// would spend its wait on the way to a group that does not have the lock.
func (s *Sessions) learnFirst(ctx context.Context, deadline core.Time) (core.Outcome, bool) {
	if ctx.Err() != nil {
		return core.Outcome{}, false
	}
	outcome, isComplete := s.root.openUntil(ctx, deadline)
	if failure := outcome.Failure; failure != nil && failure.Kind == core.Unavailable {
		// Nothing but a session was asked for.
		unsent := *failure
		unsent.MayHaveHappened = false
		outcome.Failure = &unsent
	}
	return outcome, isComplete
}

// Status reads a lock. It opens no session in another group than the root group: if there is none, it calls a node.
func (s *Sessions) Status(ctx context.Context, name string) (core.Outcome, bool) {
	request := &core.Status{Name: name}
	// A read is of one lock, so there is no failure.
	group, _ := s.groupOf(request)
	if session := s.known(group); session != nil {
		outcome, isComplete := session.Run(ctx, request, Options{})
		if !isComplete || !outcome.Failure.IsOfOtherGroup() {
			return outcome, isComplete
		}
		s.noteRefusal(session, outcome.Failure)
	}
	return s.callStatus(ctx, name)
}

// Close ends all sessions, at the same time. The second value is false if the context ended first.
func (s *Sessions) Close(ctx context.Context) (core.Outcome, bool) {
	s.mu.Lock()
	s.isClosed = true
	s.mu.Unlock()
	all := s.all()
	outcomes, areComplete := make([]core.Outcome, len(all)), make([]bool, len(all))
	var closing sync.WaitGroup
	for place, session := range all {
		closing.Add(1)
		go func() {
			defer closing.Done()
			outcomes[place], areComplete[place] = session.Close(ctx)
		}()
	}
	closing.Wait()
	for place, outcome := range outcomes {
		if !areComplete[place] || outcome.Failure != nil {
			return outcome, areComplete[place]
		}
	}
	return core.Outcome{}, true
}

// Circuit returns the worst state of the circuit breakers. A call fails at once only if that of its own group is open.
func (s *Sessions) Circuit() core.Circuit {
	worst := core.CircuitClosed
	for _, session := range s.all() {
		switch circuit := session.Circuit(); circuit {
		case core.CircuitOpen:
			return circuit
		case core.CircuitHalfOpen:
			worst = circuit
		}
	}
	return worst
}

// learn is called for each welcome, with its map, or with nil.
func (s *Sessions) learn(told *core.GroupMap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isWelcome = true
	if s.routes.Learn(told) && s.hasRisen != nil {
		close(s.hasRisen)
		s.hasRisen = nil
	}
}

func (s *Sessions) hasLearned() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isWelcome
}

func (s *Sessions) groupOf(request core.Request) (uint32, *core.Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.routes.GroupOf(request)
}

// known returns the session in a group, if the client has one.
func (s *Sessions) known(group uint32) *Engine {
	if group == core.RootGroup {
		return s.root
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.others[group]
}

// open returns the session in a group, which is there from now on. It returns nil if the client is closed.
func (s *Sessions) open(group uint32) *Engine {
	if session := s.known(group); session != nil {
		return session
	}
	s.mu.Lock()
	leader := s.routes.LeaderOf(group)
	s.mu.Unlock()
	config := s.config
	config.Endpoints = s.root.endpointsOfGroup(leader)
	config.Settings = proto.Clone(config.Settings).(*pb.OpenSessionRequest)
	config.Settings.Group = group
	config.Log = config.Log.With("group", group)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return nil
	}
	if s.others[group] == nil {
		s.others[group] = newEngine(config, s.ids.ofOneGroup(), s.learn)
	}
	return s.others[group]
}

func (s *Sessions) all() []*Engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []*Engine{s.root}
	for _, session := range s.others {
		all = append(all, session)
	}
	return all
}

func (s *Sessions) redirect(
	redirects *core.Redirects, session *Engine, refusal *core.Failure, request core.Request, asked uint32,
) core.Redirect {
	s.noteRefusal(session, refusal)
	s.mu.Lock()
	defer s.mu.Unlock()
	owner, failure := s.routes.GroupOf(request)
	if failure != nil {
		// The locks are in several groups by now, which the next try tells.
		return core.Redirect{}
	}
	return redirects.Next(refusal, asked, owner, &s.routes)
}

// noteRefusal fetches a newer map, if the group has refused by one.
func (s *Sessions) noteRefusal(session *Engine, refusal *core.Failure) {
	s.mu.Lock()
	isNewer := s.routes.IsOlderThan(refusal)
	s.mu.Unlock()
	if isNewer {
		session.fetchMap()
	}
}

// pause returns false if the context ended first.
func (s *Sessions) pause(ctx context.Context, redirect core.Redirect) bool {
	timer := time.NewTimer(redirect.Pause)
	defer timer.Stop()
	for {
		var risen <-chan struct{}
		if redirect.MapEpoch > 0 {
			if risen = s.whenRisen(redirect.MapEpoch); risen == nil {
				return true
			}
		}
		select {
		case <-timer.C:
			return true
		case <-risen:
		case <-s.root.base.Done():
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// whenRisen returns what is closed when the epoch of the map rises; nil if it is this one, or a higher one.
func (s *Sessions) whenRisen(epoch uint64) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.routes.Epoch() >= epoch {
		return nil
	}
	if s.hasRisen == nil {
		s.hasRisen = make(chan struct{})
	}
	return s.hasRisen
}
