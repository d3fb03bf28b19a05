package core

import (
	"slices"
	"time"

	pb "holdfast/sdks/go/holdfastv1"
)

const (
	// helloTimeout is within which a node has to answer the hello.
	helloTimeout = time.Second
	// settlingTime: one command under one lock is served before it would pay to move to the leader.
	settlingTime = 250 * time.Millisecond
	// approachSpanMin: a leader that takes the connection and then says nothing costs a second or two.
	approachSpanMin = 6 * time.Second
	// refusedPatience: a cluster all of whose nodes refuse the connection is not there, and will hardly come.
	refusedPatience = time.Second
	closingPatience = 2 * time.Second
	// mapInterval is between two welcomes that are asked for only to learn a newer map. Until a node knows it, another
	// welcome tells nothing new.
	mapInterval = time.Second
	// openFor is half of the time for which the cluster remembers the ids of ended sessions. An open that is older gets a
	// new id.
	openFor = time.Minute
)

// Output is something that the driver of a session has to do.
type Output interface{ isOutput() }

type (
	// Completed: the caller gets the outcome.
	Completed struct {
		Caller  *Call
		Outcome Outcome
	}
	// Queued: the caller waits in a queue.
	Queued struct {
		Caller   *Call
		Position uint64
	}
	// Connect to a node, then call HandleConnected or HandleConnectFailed.
	Connect struct{ Address string }
	// Disconnect leaves the stream and forgets a connection that is being made.
	Disconnect struct{ WithFarewell bool }
	// Opened: a node serves the session.
	Opened struct {
		Address   string
		IsResumed bool
	}
	// MapTold: the welcome says which group owns which locks.
	MapTold struct{ Map *GroupMap }
	// Ended: the session is over, and with it all that was held. Words are those of the node, if it said some.
	Ended struct{ Reason, Words string }
)

func (Completed) isOutput()  {}
func (Queued) isOutput()     {}
func (Connect) isOutput()    {}
func (Disconnect) isOutput() {}
func (Opened) isOutput()     {}
func (MapTold) isOutput()    {}
func (Ended) isOutput()      {}

// Contact says how far a connection got.
type Contact int

const (
	// NotMade is a connection that did not come about.
	NotMade Contact = iota
	// Refused means that nothing listens there.
	Refused
	// Denied means that the node is not the right one, or does not accept this client.
	Denied
	made
)

type link int

const (
	idle link = iota
	paused
	connecting
	greeting
	open
	finished
)

// Session is a client's session in one group of the cluster, over streams that break and sessions that are lost.
//
// It does nothing by itself. Its driver owns the stream, the clock and the callers. After each input the driver carries
// out TakeOutputs, sends NextFrame until there is none, and sleeps until NextTimeout or the next input.
type Session struct {
	endpoints *Endpoints
	breaker   breaker
	state     *state

	settings     *pb.OpenSessionRequest
	newSessionID func() string
	span         time.Duration

	link          link
	address       string
	until         Time
	hello         hello
	isHelloUnsent bool
	isApproach    bool
	// approachAt is when the session takes another stream, to approached: to the leader, or to the same node for its welcome.
	approachAt    Time
	approached    string
	isApproaching bool
	// mapWantedAt is when the session last took another stream for its welcome, or will.
	mapWantedAt  Time
	blockedSince Time
	// unhelpful is a leader that could be connected to, and yet did not serve.
	unhelpful string
	// openers are callers who wait for a session, and ask for nothing else.
	openers []*entry
	// wasEverOpen: the client has had a session, in this group or in another one.
	wasEverOpen bool
	denials     denials
	// isOnlyRefused: since refusedSince all that the nodes ever did was to refuse the connection.
	isOnlyRefused bool
	refusedSince  Time
	closingUntil  Time
}

// NewSession returns a session that is not open yet. The settings are those of every open, and name the group; jitter
// returns numbers from 0 to 1. The session in the root group is the first of a client.
func NewSession(
	endpoints *Endpoints, settings *pb.OpenSessionRequest, newSessionID func() string, jitter func() float64, now Time,
) *Session {
	span := spanOf(settings.GetTtlMs())
	if settings.LingerMs != nil {
		span = min(span, spanOf(settings.GetLingerMs()))
	}
	isFirst := settings.GetGroup() == groupToWire(RootGroup)
	return &Session{
		endpoints:     endpoints,
		breaker:       breaker{state: CircuitClosed},
		state:         newState(newSessionID(), settings.GetGroup(), span, jitter),
		settings:      settings,
		newSessionID:  newSessionID,
		span:          span,
		denials:       newDenials(spanOf(settings.GetTtlMs())),
		approachAt:    Never,
		blockedSince:  Never,
		mapWantedAt:   now.Add(-mapInterval),
		wasEverOpen:   !isFirst,
		isOnlyRefused: isFirst,
		refusedSince:  now,
		closingUntil:  Never,
	}
}

// TakeOutputs returns what has to be done, in this order.
func (s *Session) TakeOutputs() []Output {
	outputs := s.state.outputs
	s.state.outputs = nil
	return outputs
}

// IsFinished says that the session is closed and nothing will come of it any more.
func (s *Session) IsFinished() bool { return s.link == finished }

// IsOwedAnAnswer says whether the node that serves the session has not answered something.
func (s *Session) IsOwedAnAnswer() bool { return s.link == open && !s.state.requests.isEmpty() }

// Circuit returns the state of the circuit breaker.
func (s *Session) Circuit() Circuit { return s.breaker.state }

// Unavailable says why no node serves.
func (s *Session) Unavailable(mayHaveHappened bool) *Failure {
	return s.state.unavailable(mayHaveHappened)
}

// Addresses returns the nodes that are known.
func (s *Session) Addresses() []string { return s.endpoints.All() }

// EndpointsOfGroup returns the same nodes for a session in another group. Its leader, if it is known, is tried first.
func (s *Session) EndpointsOfGroup(leader string) *Endpoints { return s.endpoints.ofGroup(leader) }

// HandleOpen opens a session now, and not with the first request.
func (s *Session) HandleOpen(now Time, caller *Call) {
	e := &entry{request: openSession{}, caller: caller}
	switch {
	case s.IsFinished() || s.isClosing():
		s.state.complete(e, failed(&Failure{Kind: Closed}))
	case s.state.isOpen():
		s.state.complete(e, Outcome{})
	default:
		s.openers = append(s.openers, e)
		s.beginFirst(now)
		s.connectIfNeeded(now)
	}
}

// HandleRequest takes a request of the program. It returns the number by which HandleAbandoned knows it.
func (s *Session) HandleRequest(now Time, request Request, caller *Call) uint64 {
	e := &entry{request: request, caller: caller}
	if caller != nil {
		e.renews = caller.Renews
	}
	if s.IsFinished() || s.isClosing() {
		s.state.complete(e, outcomeIfLost(e, "session_closed"))
		return 0
	}
	s.beginFirst(now)
	number := s.state.ask(e)
	s.connectIfNeeded(now)
	return number
}

// HandleAbandoned is for a request whose caller is gone.
func (s *Session) HandleAbandoned(now Time, number uint64) {
	if !s.IsFinished() {
		s.state.abandon(number)
		s.connectIfNeeded(now)
	}
}

// HandleOpenAbandoned is for an opener that is gone.
func (s *Session) HandleOpenAbandoned(caller *Call) {
	s.openers = slices.DeleteFunc(s.openers, func(e *entry) bool { return e.caller == caller })
}

// HandleClose ends the session.
func (s *Session) HandleClose(now Time, caller *Call) {
	caller.WaitsUntil = now.Add(closingPatience)
	e := &entry{request: closeSession{}, caller: caller}
	if s.IsFinished() || !s.state.isOpen() {
		s.state.complete(e, Outcome{})
		s.finish()
		return
	}
	if !s.isClosing() {
		s.closingUntil = now.Add(closingPatience)
		s.approachAt = Never
		// What is held when a session is closed is given back by that.
		s.state.requests.takeOut(func(e *entry) bool { return e.isRelease() && e.caller == nil })
	}
	s.state.ask(e)
}

// Watch makes that the loss of a hold is reported also if no message tells it.
func (s *Session) Watch(hold *Hold) { s.state.watch(hold) }

func (s *Session) isClosing() bool { return s.closingUntil != Never }

func (s *Session) beginFirst(now Time) {
	if s.link == idle && !s.wasEverOpen {
		s.isOnlyRefused, s.refusedSince = true, now
	}
}

// HandleConnected returns false if the connection is not wanted any more.
func (s *Session) HandleConnected(now Time) bool {
	switch {
	case s.link == connecting:
		s.isApproach = false
	case s.link == open && s.isApproaching:
		s.state.streamBroke()
		s.disconnect(true)
		s.breaker.handleTry(now)
		s.address, s.isApproach = s.approached, true
	default:
		return false
	}
	if !s.state.isOpen() && s.state.opens > 0 && now > s.state.openSentAt.Add(openFor) {
		s.drawSessionID()
	}
	s.hello = s.state.hello(s.settings, now)
	s.isHelloUnsent = true
	s.link, s.until = greeting, now.Add(helloTimeout)
	return true
}

// HandleConnectFailed says how far the connection got.
func (s *Session) HandleConnectFailed(now Time, words string, contact Contact) {
	switch s.link {
	case connecting:
		s.endpoints.couldNotReach(s.address)
		// If it was denied, another node may accept it. If none does, there will be no session.
		failure := &pb.Failure{Message: words, Retryable: contact != Denied}
		if contact == Denied {
			failure.Reason = pb.Reason_REASON_UNAUTHENTICATED
		}
		s.onNoStream(now, contact, failure)
	case open:
		// It is served where it is.
		s.isApproaching = false
	}
}

// HandleFrame takes in what a node sent.
func (s *Session) HandleFrame(now Time, frame *pb.ServerFrame) {
	answers := frame.GetAnswers()
	if s.link == greeting {
		isHello := func(answer *pb.Answer) bool { return answer.GetRequestId() == s.hello.id }
		place := slices.IndexFunc(answers, isHello)
		if place < 0 {
			s.onHelloUnanswered(now, "the first frame does not answer the hello")
			return
		}
		answer := answers[place]
		if failure := answer.GetFailure(); failure != nil {
			s.state.ignoreOtherLeader(failure)
			s.onHelloFailed(now, failure, true, false)
			return
		}
		welcome := answer.GetOpen()
		if welcome == nil {
			welcome = answer.GetResume()
		}
		if welcome == nil {
			s.onHelloUnanswered(now, "the first frame does not answer the hello")
			return
		}
		s.onWelcome(now, welcome)
		answers = slices.Delete(slices.Clone(answers), place, place+1)
	}
	if s.link != open {
		return
	}
	told := s.state.onFrame(now, answers, frame.GetNotices())
	if s.state.endpointsTold != nil {
		s.endpoints.learn(s.state.endpointsTold)
		s.state.endpointsTold = nil
	}
	switch told.rank {
	case sessionClosed:
		s.finish()
	case sessionLost, sessionLostByNotice:
		s.replaceSession(now, told.words, "")
	case move, moveToLeader:
		s.leaveNode(now, told.leader, told.words)
	}
}

// HandleDisconnected says why the stream is over. A proxy may have said so, which knows nothing of sessions: only the
// denials of a node count.
func (s *Session) HandleDisconnected(now Time, failure *pb.Failure, isFromNode bool) {
	s.state.ignoreOtherLeader(failure)
	switch {
	case s.link == greeting:
		s.onHelloFailed(now, failure, isFromNode, false)
	case s.link == open && failure.GetReason() == pb.Reason_REASON_UNKNOWN_SESSION:
		s.replaceSession(now, "session_expired", "")
	case s.link == open:
		s.leaveNode(now, failure.GetLeader(), failure.GetMessage())
	}
}

// HandleMapWanted says that a group has refused by a newer map than the client has. The session takes another stream to the
// same node, whose welcome tells the newest map that the node knows. Until then the present stream serves it.
func (s *Session) HandleMapWanted(now Time) {
	if s.link != open || s.isClosing() || s.isApproaching {
		// A welcome comes anyway, or none is wanted any more.
		return
	}
	at := max(now, s.mapWantedAt.Add(mapInterval))
	if s.approachAt <= at {
		return
	}
	if s.approachAt == Never {
		s.approached = s.address
	}
	s.mapWantedAt, s.approachAt = at, at
}

// HandleBlocked says that the stream has no room for the next frame.
func (s *Session) HandleBlocked(now Time) {
	if s.link == open && s.blockedSince == Never {
		s.blockedSince = now
	}
}

// HandleTimeout does what is due.
func (s *Session) HandleTimeout(now Time) {
	if s.closingUntil <= now {
		s.finish()
		return
	}
	s.letOpenersGo(now)
	s.state.letCallersGo(now)
	s.state.checkWatched(now)
	switch {
	case s.link == paused && s.until <= now:
		s.link = idle
		s.connectIfNeeded(now)
	case s.link == greeting && s.until <= now:
		s.onHelloUnanswered(now, "no answer to the hello within a second")
	case s.link == open:
		if s.approachAt <= now {
			s.approachAt, s.isApproaching = Never, true
			s.output(Connect{s.approached})
		}
		s.state.stageDue(now)
		// Only so that it is known when the next answer is due.
		s.state.requests.isAnswerOverdue(now)
	}
}

// HandleQuiet says that nothing that arrived is left to be read: a node that owes an answer is left.
func (s *Session) HandleQuiet(now Time) {
	if s.link != open {
		return
	}
	if s.state.requests.isAnswerOverdue(now) {
		s.leaveNode(now, "", "the node does not answer")
	} else if s.blockedSince != Never && s.blockedSince.Add(s.state.answerPatience) <= now {
		s.leaveNode(now, "", "the node takes nothing more")
	}
}

// NextTimeout returns when HandleTimeout and HandleQuiet have to be called; [Never] if only an input can change
// something.
func (s *Session) NextTimeout() Time {
	due := min(s.state.callersWaitUntil, s.state.watchedUntil, s.closingUntil)
	for _, e := range s.openers {
		due = min(due, e.caller.WaitsUntil)
	}
	switch s.link {
	case paused, greeting:
		due = min(due, s.until)
	case open:
		due = min(due, s.state.nextDue(), s.approachAt)
		if s.blockedSince != Never {
			due = min(due, s.blockedSince.Add(s.state.answerPatience))
		}
	}
	return due
}

// NextFrame returns what is to be sent next; nil if there is nothing. It is to be called only while the stream has room.
func (s *Session) NextFrame(now Time) *pb.ClientFrame {
	switch {
	case s.link == greeting && s.isHelloUnsent:
		s.isHelloUnsent = false
		return s.hello.frame
	case s.link == open:
		s.blockedSince = Never
		return s.state.nextFrame(now)
	default:
		return nil
	}
}

// HasFrame says whether there is something to send. NextFrame may hold it back.
func (s *Session) HasFrame() bool {
	if s.link == greeting {
		return s.isHelloUnsent
	}
	return s.link == open && s.state.requests.hasStaged()
}

func (s *Session) output(output Output) { s.state.outputs = append(s.state.outputs, output) }

func (s *Session) connectIfNeeded(now Time) {
	isWanted := len(s.openers) > 0 || s.state.requests.hasStaged()
	if s.link == idle && (s.state.isOpen() || isWanted || s.breaker.state != CircuitClosed) {
		s.breaker.handleTry(now)
		s.address = s.endpoints.nextAddress()
		s.link = connecting
		s.output(Connect{s.address})
	}
}

func (s *Session) onWelcome(now Time, welcome *pb.OpenSessionResponse) {
	if told := parseGroupMap(welcome.GetMap()); told != nil && !IsPlanted(IgnoreMap) {
		s.output(MapTold{told})
	}
	s.output(Opened{Address: s.address, IsResumed: s.state.isOpen()})
	s.state.backoff.reset()
	s.breaker.handleSuccess()
	s.isOnlyRefused = false
	s.wasEverOpen = true
	s.denials.reset()
	s.endpoints.reached()
	if s.unhelpful == s.address {
		s.unhelpful = ""
	}
	clear(s.state.errors)
	s.state.welcomed(s.hello.sentAt, welcome)
	s.link, s.blockedSince = open, Never
	leader := welcome.GetLeader()
	s.approached, s.isApproaching = leader, false
	s.approachAt = Never
	if leader != s.address && s.endpoints.mayFollow(leader) && leader != s.unhelpful &&
		s.span >= approachSpanMin && !s.isClosing() {
		s.approachAt = now.Add(settlingTime)
	}
	s.endpoints.learn(welcome.GetEndpoints())
	s.tellOpeners(Outcome{})
}

// letOpenersGo tells the openers who have waited as long as they wanted to.
func (s *Session) letOpenersGo(now Time) {
	openers := s.openers
	s.openers = nil
	for _, e := range openers {
		if e.caller.WaitsUntil <= now {
			s.state.complete(e, failed(s.state.unavailable(true)))
		} else {
			s.openers = append(s.openers, e)
		}
	}
}

func (s *Session) tellOpeners(outcome Outcome) {
	openers := s.openers
	s.openers = nil
	for _, e := range openers {
		s.state.complete(e, outcome)
	}
}

func (s *Session) onHelloUnanswered(now Time, words string) {
	s.onHelloFailed(now, &pb.Failure{Message: words, Retryable: true, MayHaveHappened: true}, false, true)
}

func (s *Session) onHelloFailed(now Time, failure *pb.Failure, isFromNode, withFarewell bool) {
	s.disconnect(withFarewell)
	if s.isApproach {
		s.unhelpful = s.address
	}
	s.endpoints.reached()
	isWord := isFromNode && s.state.isOpen() && !IsPlanted(CountFailures)
	if isWord && s.denials.note(now, s.address, failure, s.endpoints.All()) {
		s.onDenied(now, failure)
	} else {
		s.onNoStream(now, made, failure)
	}
}

// onDenied gives the session up. What becomes of it in the cluster is not known: the client can neither renew nor end
// it.
func (s *Session) onDenied(now Time, failure *pb.Failure) {
	s.breaker.handleSuccess()
	for _, e := range s.state.requests.takeOut(func(*entry) bool { return true }) {
		told := RejectedBy(failure)
		told.MayHaveHappened = e.wasSent
		s.state.complete(e, failed(told))
	}
	s.replaceSession(now, "denied", failure.GetMessage())
}

func (s *Session) onNoStream(now Time, contact Contact, failure *pb.Failure) {
	s.link = idle
	s.state.leaderLost("leader_unreachable")
	if s.wasOpenedUnseen(failure) {
		s.drawSessionID()
		s.pause(now)
		return
	}
	// The node served if it said what becomes of the session.
	isVerdict := !failure.GetRetryable()
	if s.state.isOpen() {
		isVerdict = failure.GetReason() == pb.Reason_REASON_UNKNOWN_SESSION
	}
	if isVerdict {
		s.breaker.handleSuccess()
	} else {
		s.breaker.handleFailure(now)
	}
	s.state.errors[s.address] = failure.GetMessage()
	if contact != Refused {
		s.isOnlyRefused = false
	}
	hasTriedAll := s.endpoints.hasTriedAll()
	switch {
	case s.isOnlyRefused && now >= s.refusedSince.Add(refusedPatience) && hasTriedAll:
		// A client that has no session yet does not wait for nodes that are not there.
		s.giveUp(s.state.unavailable(false))
		s.refusedSince = now
	case contact != made && !hasTriedAll:
		// A node that is gone is no reason to keep the next one waiting.
		s.connectIfNeeded(now)
	case s.state.isOpen() && isVerdict:
		s.replaceSession(now, "session_expired", "")
	case isVerdict:
		// The cluster refuses a session with these settings. The limits may change.
		s.giveUp(RejectedBy(failure))
		s.replaceSession(now, "ended", "")
	default:
		s.endpoints.followLeader(failure.GetLeader())
		s.pauseAfter(now, retryAfter(failure))
	}
}

func (s *Session) giveUp(failure *Failure) {
	s.tellOpeners(failed(failure))
	for _, e := range s.state.requests.takeOut(func(*entry) bool { return true }) {
		s.state.complete(e, failed(failure))
	}
}

// leaveNode is for a node that does not serve the session any more. Another has to.
func (s *Session) leaveNode(now Time, leader, words string) {
	s.state.errors[s.address] = words
	s.endpoints.followLeader(leader)
	s.state.streamBroke()
	s.state.leaderLost("leader_unreachable")
	s.disconnect(!s.isClosing())
	// Not at once: the next node may not know yet that it leads.
	s.pause(now)
}

func (s *Session) replaceSession(now Time, reason, words string) {
	s.disconnect(false)
	s.denials.reset()
	if s.state.isOpen() {
		s.output(Ended{reason, words})
	}
	s.state.end(reason, !s.isClosing())
	if s.isClosing() {
		s.finish()
		return
	}
	s.drawSessionID()
	s.link = idle
	s.connectIfNeeded(now)
}

// wasOpenedUnseen says that an earlier open was carried out, and the session has ended since.
func (s *Session) wasOpenedUnseen(failure *pb.Failure) bool {
	return !s.state.isOpen() && s.state.opens > 1 && failure.GetReason() == pb.Reason_REASON_SESSION_EXISTS
}

func (s *Session) drawSessionID() { s.state.id, s.state.opens = s.newSessionID(), 0 }

func (s *Session) pause(now Time) { s.pauseAfter(now, 0) }

// pauseAfter is never so long that it would matter to a short lease. Without a session, it is as long as the node has
// told.
func (s *Session) pauseAfter(now Time, told time.Duration) {
	delay := told + s.state.backoff.next()
	if told == 0 || s.state.isOpen() {
		delay = min(delay, s.span/20)
	}
	s.link, s.until = paused, now.Add(delay)
}

func (s *Session) disconnect(withFarewell bool) {
	s.approachAt, s.isApproaching = Never, false
	s.output(Disconnect{withFarewell})
}

func (s *Session) finish() {
	if s.IsFinished() {
		return
	}
	// A close without an answer stays without one: its caller must not take it for done.
	for _, e := range s.state.requests.takeOut((*entry).isClose) {
		s.state.complete(e, failed(s.state.unavailable(true)))
	}
	s.tellOpeners(failed(&Failure{Kind: Closed}))
	s.state.end("session_closed", false)
	s.disconnect(false)
	s.link = finished
}
