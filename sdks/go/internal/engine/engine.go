// Package engine drives the sessions of a client: it owns the streams, reads the clock, and decides nothing.
//
// [Sessions] has an [Engine] for each group whose locks the client uses. A caller's request enters the session in the caller's own goroutine, under the engine's lock. One goroutine minds the
// time; each stream has one that reads and one that writes. Nothing under the lock waits for the network.
package engine

import (
	"context"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"time"

	pb "holdfast/sdks/go/holdfastv1"
	"holdfast/sdks/go/internal/clock"
	"holdfast/sdks/go/internal/core"
)

const (
	// pingAfter: a node of which nothing came for so long, though it owes an answer, is asked whether it is there, and
	// then left.
	pingAfter = 2 * time.Second
	// standstill: a timer that is so late means that this process stood still. That is no silence of the node.
	standstill = 200 * time.Millisecond
	// readingTime is what is left after a standstill to read what had come.
	readingTime = 250 * time.Millisecond
)

// Config is what the sessions of a client have in common.
type Config struct {
	Endpoints      *core.Endpoints
	Settings       *pb.OpenSessionRequest
	RequestTimeout time.Duration
	Security       Security
	Log            *slog.Logger
}

// Engine runs the session of a client in one group.
type Engine struct {
	config Config
	// mapTold is called with the map of a welcome, or nil if it has told none, under the engine's lock.
	mapTold func(*core.GroupMap)
	// base ends with the engine.
	base context.Context
	stop context.CancelFunc
	wake chan struct{}

	mu        sync.Mutex
	session   *core.Session
	isRunning bool
	isClosed  bool
	stream    *stream
	// dialNumber tells connections apart that are still wanted.
	dialNumber  int
	sleepsUntil core.Time
	heardAt     core.Time
	pingedAt    core.Time
	// quietFrom: before then what had come may not have been read.
	quietFrom core.Time
}

// newEngine returns an engine that does nothing until it is asked for something.
func newEngine(config Config, newSessionID func() string, mapTold func(*core.GroupMap)) *Engine {
	base, stop := context.WithCancel(context.Background())
	session := core.NewSession(config.Endpoints, config.Settings, newSessionID, mathrand.Float64, clock.Now())
	return &Engine{
		config: config, mapTold: mapTold, base: base, stop: stop, wake: make(chan struct{}, 1), session: session,
	}
}

// Options of a request.
type Options struct {
	Wait time.Duration
	// Until bounds the call, however many groups are asked; 0: for the wait and one request timeout.
	Until    core.Time
	Renews   time.Duration
	OnQueued func(position uint64)
}

// Run sends a request, and waits for its outcome. The second value is false if the context ended first. Then the engine
// cancels a request for locks, or releases what it was granted, in the background. If no node can be reached, the
// session's TTL does both.
func (e *Engine) Run(ctx context.Context, request core.Request, options Options) (core.Outcome, bool) {
	if ctx.Err() != nil && core.CanWait(request) {
		return core.Outcome{}, false
	}
	done := make(chan core.Outcome, 1)
	call := &core.Call{
		Renews:   options.Renews,
		OnQueued: options.OnQueued,
		Resolve:  func(outcome core.Outcome) { done <- outcome },
	}
	call.WaitsUntil = options.Until
	if call.WaitsUntil == 0 {
		call.WaitsUntil = e.deadline(options.Wait)
	}
	number, failure := e.start(request, call)
	if failure != nil {
		return core.Outcome{Failure: failure}, true
	}
	select {
	case outcome := <-done:
		// It may still be granted.
		if outcome.Failure != nil && outcome.Failure.Kind == core.Unavailable && core.CanWait(request) {
			e.abandon(number)
		}
		return outcome, true
	case <-ctx.Done():
		if core.CanWait(request) {
			e.abandon(number)
		}
		return core.Outcome{}, false
	}
}

// deadline returns until when the caller of a request that is made now waits for its outcome.
func (e *Engine) deadline(wait time.Duration) core.Time {
	return clock.Now().Add(wait + e.config.RequestTimeout)
}

func (e *Engine) start(request core.Request, call *core.Call) (uint64, *core.Failure) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isClosed {
		return 0, &core.Failure{Kind: core.Closed}
	}
	e.run()
	if _, isRelease := request.(*core.Release); !isRelease && e.session.Circuit() != core.CircuitClosed {
		return 0, e.session.Unavailable(false)
	}
	now := clock.Now()
	e.noteIdle(now)
	number := e.session.HandleRequest(now, request, call)
	e.pump(now)
	return number, nil
}

// Open opens the session now. The second value is false if the context ended first.
func (e *Engine) Open(ctx context.Context) (core.Outcome, bool) {
	return e.openUntil(ctx, e.deadline(0))
}

func (e *Engine) openUntil(ctx context.Context, deadline core.Time) (core.Outcome, bool) {
	return e.wait(ctx, func(now core.Time, call *core.Call) {
		call.WaitsUntil = deadline
		e.session.HandleOpen(now, call)
	}, false)
}

// Close ends the session. The second value is false if the context ended first.
func (e *Engine) Close(ctx context.Context) (core.Outcome, bool) {
	return e.wait(ctx, func(now core.Time, call *core.Call) { e.session.HandleClose(now, call) }, true)
}

func (e *Engine) wait(
	ctx context.Context, ask func(core.Time, *core.Call), closes bool,
) (core.Outcome, bool) {
	done := make(chan core.Outcome, 1)
	call := &core.Call{Resolve: func(outcome core.Outcome) { done <- outcome }}
	e.mu.Lock()
	if e.isClosed && !closes {
		e.mu.Unlock()
		return core.Outcome{Failure: &core.Failure{Kind: core.Closed}}, true
	}
	e.isClosed = e.isClosed || closes
	e.run()
	now := clock.Now()
	ask(now, call)
	e.pump(now)
	e.mu.Unlock()
	select {
	case outcome := <-done:
		return outcome, true
	case <-ctx.Done():
		e.mu.Lock()
		defer e.mu.Unlock()
		e.session.HandleOpenAbandoned(call)
		return core.Outcome{}, false
	}
}

func (e *Engine) abandon(number uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := clock.Now()
	e.session.HandleAbandoned(now, number)
	e.pump(now)
}

// Watch makes that the losses of these holds are reported also if no message tells them.
func (e *Engine) Watch(holds []*core.Hold) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, hold := range holds {
		e.session.Watch(hold)
	}
	e.wakeIfLate()
}

// fetchMap makes that the session learns a newer map than the client has.
func (e *Engine) fetchMap() {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := clock.Now()
	e.session.HandleMapWanted(now)
	e.pump(now)
}

// connected returns the node of the present stream; nil if there is none.
func (e *Engine) connected() *Node {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stream == nil {
		return nil
	}
	return e.stream.node
}

// endpointsOfGroup returns the nodes for a session in another group, which this node leads.
func (e *Engine) endpointsOfGroup(leader string) *core.Endpoints {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.session.EndpointsOfGroup(leader)
}

// Circuit returns the state of the circuit breaker.
func (e *Engine) Circuit() core.Circuit {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.session.Circuit()
}

// Addresses returns the nodes that are known.
func (e *Engine) Addresses() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.session.Addresses()
}

// Base ends when the session is closed.
func (e *Engine) Base() context.Context { return e.base }

// Security returns how nodes are reached.
func (e *Engine) Security() *Security { return &e.config.Security }

// run starts the goroutine that minds the time. The lock is held.
func (e *Engine) run() {
	if !e.isRunning {
		e.isRunning = true
		go e.mindTime()
	}
}

func (e *Engine) mindTime() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-e.wake:
		}
		e.mu.Lock()
		sleep, isOver := e.handleTime(clock.Now())
		e.mu.Unlock()
		if isOver {
			e.stop()
			return
		}
		timer.Reset(sleep)
	}
}

// handleTime does what is due, and returns for how long nothing will be.
func (e *Engine) handleTime(now core.Time) (time.Duration, bool) {
	if e.sleepsUntil > 0 && now > e.sleepsUntil.Add(standstill) {
		e.quietFrom = now.Add(readingTime)
		e.heardAt = now
	}
	e.noteIdle(now)
	e.session.HandleTimeout(now)
	if now >= e.quietFrom {
		e.session.HandleQuiet(now)
		e.mindSilence(now)
	}
	// The pump must not wake the goroutine that it runs in.
	e.sleepsUntil = 0
	e.pump(now)
	due := e.nextTimeout()
	if due <= now {
		due = max(now.Add(time.Millisecond), e.quietFrom)
	}
	e.sleepsUntil = due
	return time.Duration(min(due-now, core.Time(time.Hour))), e.session.IsFinished()
}

// pump does what the session wants, and sends what it has to send. The lock is held.
func (e *Engine) pump(now core.Time) {
	for outputs := e.session.TakeOutputs(); len(outputs) > 0; outputs = e.session.TakeOutputs() {
		for _, output := range outputs {
			e.carryOut(output)
		}
	}
	for e.stream != nil && !e.stream.isFull {
		frame := e.session.NextFrame(now)
		if frame == nil {
			break
		}
		e.stream.isFull = true
		e.stream.out <- frame
	}
	if e.stream != nil && e.stream.isFull && e.session.HasFrame() {
		e.session.HandleBlocked(now)
	}
	e.wakeIfLate()
}

func (e *Engine) carryOut(output core.Output) {
	switch output := output.(type) {
	case core.Completed:
		output.Caller.Resolve(output.Outcome)
	case core.Queued:
		if output.Caller.OnQueued != nil {
			// The program's own code may block, and may ask for other locks.
			go output.Caller.OnQueued(output.Position)
		}
	case core.Connect:
		e.dialNumber++
		go e.dial(e.dialNumber, output.Address)
	case core.Disconnect:
		e.dialNumber++
		if e.stream != nil {
			e.stream.leave(output.WithFarewell)
			e.stream = nil
		}
	case core.Opened:
		// The map, if there is one, has been told before.
		e.mapTold(nil)
		e.config.Log.Debug("a node serves the session", "node", output.Address, "resumed", output.IsResumed)
	case core.MapTold:
		e.mapTold(output.Map)
	case core.Ended:
		attributes := []any{"reason", output.Reason}
		if output.Words != "" {
			attributes = append(attributes, "error", output.Words)
		}
		e.config.Log.Warn("the session ended, and with it all its locks", attributes...)
	}
}

func (e *Engine) dial(number int, address string) {
	opened, err := openStream(e.base, address, &e.config.Security)
	e.mu.Lock()
	defer e.mu.Unlock()
	now := clock.Now()
	switch {
	case number != e.dialNumber:
		if opened != nil {
			opened.hangUp()
		}
	case err != nil:
		e.config.Log.Debug("a node cannot be reached", "node", address, "error", err)
		words, contact := err.Error(), contactOf(err)
		if contact == core.Refused {
			words = "connection refused: no node listens there; start one, or correct the endpoints"
		}
		e.session.HandleConnectFailed(now, words, contact)
		e.pump(now)
	case e.session.HandleConnected(now):
		// The old stream is left first.
		e.pump(now)
		e.stream = opened
		e.heardAt, e.pingedAt = now, now
		go opened.write(func() { e.sent(opened) })
		go e.read(opened)
		e.pump(now)
	default:
		opened.hangUp()
	}
}

func (e *Engine) sent(on *stream) {
	e.mu.Lock()
	defer e.mu.Unlock()
	on.isFull = false
	if on == e.stream {
		e.pump(clock.Now())
	}
}

func (e *Engine) read(from *stream) {
	failure, isFromNode := from.read(func(frame *pb.ServerFrame) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if from == e.stream {
			now := clock.Now()
			e.heardAt = now
			e.session.HandleFrame(now, frame)
			e.pump(now)
		}
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	if from == e.stream {
		now := clock.Now()
		e.config.Log.Debug("a stream ended", "why", failure.GetMessage())
		e.session.HandleDisconnected(now, failure, isFromNode)
		e.pump(now)
	}
}

// mindSilence is for a connection that stands though its other end has gone.
func (e *Engine) mindSilence(now core.Time) {
	if e.stream == nil || !e.session.IsOwedAnAnswer() || now < e.silentAt() {
		return
	}
	if e.pingedAt > e.heardAt {
		e.session.HandleDisconnected(now, &pb.Failure{Message: "the node has fallen silent", Retryable: true}, false)
		return
	}
	e.pingedAt = now
	pinged := e.stream
	go pinged.node.ping(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if pinged == e.stream {
			e.heardAt = clock.Now()
		}
	})
}

func (e *Engine) silentAt() core.Time { return max(e.heardAt, e.pingedAt).Add(pingAfter) }

// noteIdle: silence counts from when the node owes an answer.
func (e *Engine) noteIdle(now core.Time) {
	if !e.session.IsOwedAnAnswer() {
		e.heardAt = now
	}
}

func (e *Engine) nextTimeout() core.Time {
	due := e.session.NextTimeout()
	if e.stream != nil && e.session.IsOwedAnAnswer() {
		due = min(due, e.silentAt())
	}
	return due
}

// wakeIfLate wakes the goroutine that minds the time if it would sleep for too long.
func (e *Engine) wakeIfLate() {
	if !e.isRunning || e.sleepsUntil == 0 || (e.nextTimeout() >= e.sleepsUntil && !e.session.IsFinished()) {
		return
	}
	select {
	case e.wake <- struct{}{}:
	default:
	}
}
