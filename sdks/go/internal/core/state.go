package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	pb "holdfast/sdks/go/holdfastv1"
)

const (
	// answerPatience bounds how long an answer may take, beyond the request's own wait, before another node is asked.
	answerPatienceMin = 500 * time.Millisecond
	answerPatienceMax = 3 * time.Second
	// namesPerFrameMax keeps a frame far below the nodes' limit.
	namesPerFrameMax = 256
	// renewalsPerTTL: a renewal that the library makes by itself is due after a third of the TTL.
	renewalsPerTTL = 3
)

// hello is the first operation of a stream.
type hello struct {
	id     uint64
	sentAt Time
	frame  *pb.ClientFrame
}

// state is what is known about the present session: its holds, its lease, and what has no answer.
type state struct {
	id string
	// group is that of the session, as messages have it.
	group uint32
	// requests has ids that go on over the sessions of a client, so that a hold of a lost session is never taken for a
	// later one.
	requests *inFlight
	holds    map[holdKey]*Hold
	// releasing has holds without a guard whose release has no answer yet: an acquire may have entered them again.
	releasing map[holdKey]*Hold
	// converting has the holds whose conversion has no answer yet, and the requests that wait for it.
	converting map[uint64][]uint64
	leases     *Leases
	// opens counts how often this session was to be opened. The first time counts for its lease.
	opens      int
	openSentAt Time
	// heartbeat is the id of the one that is under way; 0: none is.
	heartbeat      uint64
	retriesDue     map[uint64]Time
	answerPatience time.Duration
	// callersWaitUntil: no caller stops waiting before then. It may be too early, and is set right when it is reached.
	callersWaitUntil Time
	// watched has holds of which the program wants to know when they are lost. None is lost before watchedUntil.
	watched      map[*Hold]bool
	watchedUntil Time
	// renewed has holds that the library renews. No renewal is due before renewalsDueFrom.
	renewed         map[*Hold]bool
	renewalsDueFrom Time
	term            uint64
	endpointsTold   []string
	backoff         backoff
	// errors says of each node why it did not serve.
	errors  map[string]string
	outputs []Output
}

func newState(id string, group uint32, span time.Duration, jitter func() float64) *state {
	return &state{
		id:               id,
		group:            group,
		requests:         newInFlight(),
		holds:            map[holdKey]*Hold{},
		releasing:        map[holdKey]*Hold{},
		converting:       map[uint64][]uint64{},
		retriesDue:       map[uint64]Time{},
		answerPatience:   min(max(span/4, answerPatienceMin), answerPatienceMax),
		callersWaitUntil: Never,
		watched:          map[*Hold]bool{},
		watchedUntil:     Never,
		renewed:          map[*Hold]bool{},
		renewalsDueFrom:  Never,
		backoff:          backoff{ceiling: firstPause, jitter: jitter},
		errors:           map[string]string{},
	}
}

func (s *state) isOpen() bool { return s.leases != nil }

func (s *state) hello(settings *pb.OpenSessionRequest, now Time) hello {
	// Read before the new id is reserved: a hello must not acknowledge its own answer.
	acked := s.requests.ackedThrough()
	id := s.requests.reserveID()
	if s.isOpen() {
		resume := &pb.ResumeSessionRequest{SessionId: s.id, RequestId: id, Group: s.group}
		operation := &pb.Operation{Kind: &pb.Operation_Resume{Resume: resume}}
		return hello{id, now, &pb.ClientFrame{AckedThrough: acked, Operations: []*pb.Operation{operation}}}
	}
	if s.opens == 0 {
		s.openSentAt = now
	}
	s.opens++
	open := &pb.OpenSessionRequest{
		SessionId: s.id, RequestId: id, TtlMs: settings.GetTtlMs(), LingerMs: settings.LingerMs, Owner: settings.GetOwner(),
		Group: s.group,
	}
	operation := &pb.Operation{Kind: &pb.Operation_Open{Open: open}}
	return hello{id, s.openSentAt, &pb.ClientFrame{Operations: []*pb.Operation{operation}}}
}

func (s *state) welcomed(sentAt Time, welcome *pb.OpenSessionResponse) {
	if s.term != welcome.GetTerm() {
		s.term = welcome.GetTerm()
		s.restartEfficiencyTier()
	}
	if s.leases != nil {
		s.leases.Answered(sentAt, welcome.GetLogicalTimeMs())
		return
	}
	ttl, linger := spanOf(welcome.GetTtlMs()), spanOf(welcome.GetLingerMs())
	s.leases = NewLeases(sentAt, welcome.GetLogicalTimeMs(), ttl, linger)
}

// ignoreOtherLeader: a node may name the leader of another group, which does not serve this session.
func (s *state) ignoreOtherLeader(failure *pb.Failure) {
	if group := failure.GetGroup(); group != 0 && group != groupOfWire(s.group) {
		failure.Leader = ""
	}
}

func spanOf(ms uint64) time.Duration { return time.Duration(min(ms, spanMsMax)) * time.Millisecond }

func (s *state) restartEfficiencyTier() {
	if s.leases != nil {
		s.leases.BestEffortRestarts()
	}
	s.endHolds("leader_changed", func(hold *Hold) bool { return hold.IsBestEffort })
	s.askAgainUnderNewIDs(func(e *entry) bool { return e.isAcquire() && e.isBestEffort() })
}

// askAgainUnderNewIDs is for requests that the cluster forgot. What is still wanted is asked for again.
func (s *state) askAgainUnderNewIDs(isMeant func(*entry) bool) {
	for _, e := range s.requests.takeOut(func(e *entry) bool { return e.wasSent && isMeant(e) }) {
		if !e.isAbandoned {
			e.wasSent, e.wasSentBefore = false, false
			s.requests.stage(e)
		}
	}
}

// leaderLost ends what is held in the memory of the leader: another leader may grant it. If that one still leads, it is
// told.
func (s *state) leaderLost(reason string) {
	if s.leases == nil {
		return
	}
	ended := s.leases.LeaderLost()
	for _, hold := range s.holdsThat(func(hold *Hold) bool { return ended[hold.lease] }) {
		hold.Loss.Report(reason)
		s.ask(&entry{request: &Release{Hold: hold}})
		if _, isConverting := s.converting[hold.lease]; !isConverting {
			hold.end(reason)
		}
	}
}

// ask takes a request in, and returns its number.
func (s *state) ask(e *entry) uint64 {
	if e.caller != nil {
		s.callersWaitUntil = min(s.callersWaitUntil, e.caller.WaitsUntil)
	}
	id := s.requests.park(e)
	e.number = id
	if e.hold() != nil {
		s.start(id)
	} else {
		s.requests.stageAgain(id)
	}
	if _, is := e.request.(*Status); is {
		// The nodes keep no answer to it.
		s.requests.markWaiting(id)
	}
	return id
}

// start sends a request about a hold, or lets it wait for the answer to the hold's conversion.
func (s *state) start(id uint64) {
	e := s.requests.get(id)
	if e == nil {
		return
	}
	hold := e.hold()
	if waiting, isConverting := s.converting[hold.lease]; isConverting {
		s.converting[hold.lease] = append(waiting, id)
		return
	}
	if s.holds[hold.key] != hold || hold.hasEnded {
		reason := hold.Loss.Reason()
		if reason == "" {
			reason = "session_closed"
		}
		s.forgetHold(hold)
		s.settle(id, outcomeIfLost(e, reason))
		return
	}
	switch e.request.(type) {
	case *Release:
		delete(s.holds, hold.key)
		s.releasing[hold.key] = hold
		s.unwatch(hold)
	case *Transfer:
		hold.heldAs.setLeaving(true)
	case *Convert:
		s.converting[hold.lease] = nil
	}
	s.requests.stageAgain(id)
}

func (s *state) stopConverting(hold *Hold) {
	waiting := s.converting[hold.lease]
	delete(s.converting, hold.lease)
	for _, id := range waiting {
		s.start(id)
	}
}

// abandon is for an acquire or a convert whose caller is gone. What was granted meanwhile is released.
func (s *state) abandon(number uint64) {
	id := s.requests.findCall(number)
	e := s.requests.get(id)
	if e == nil {
		for _, hold := range s.holdsThat(func(hold *Hold) bool { return hold.call == number }) {
			s.ask(&entry{request: &Release{Hold: hold}})
		}
		return
	}
	if !e.wasSent {
		wasParked := e.isParked
		s.requests.settle(id)
		if !wasParked {
			s.noteSettled(e)
		}
		return
	}
	e.caller, e.isAbandoned = nil, true
	if !IsPlanted(ForgetCancel) {
		s.requests.stage(&entry{request: &cancel{target: id, tier: tierOf(e.isBestEffort())}})
	}
}

func (s *state) nextFrame(now Time) *pb.ClientFrame {
	if !s.requests.hasStaged() {
		return nil
	}
	// A session whose lease is over has probably ended. Acquires wait until the node has answered something: a lost session
	// keeps what it never sent for the next one.
	isLeaseOver := s.leases != nil && s.leases.SessionValidUntil() <= now
	if isLeaseOver {
		s.stageHeartbeat(now)
	}
	mayGo := func(e *entry) bool { return !isLeaseOver || e.wasSent || !e.isAcquire() }
	ids := s.requests.takeStaged(namesPerFrameMax, mayGo)
	if len(ids) == 0 {
		// A frame without operations would be a farewell.
		return nil
	}
	frame := &pb.ClientFrame{AckedThrough: s.requests.ackedThrough()}
	for _, id := range ids {
		e := s.requests.get(id)
		frame.Operations = append(frame.Operations, e.request.operation(id))
		if renew, is := e.request.(*Renew); is && s.leases != nil {
			var ttl *time.Duration
			if renew.TTLMs != nil {
				span := spanOf(*renew.TTLMs)
				ttl = &span
			}
			s.leases.RenewalSent(renew.Hold.lease, id, now, ttl)
			s.watchAgain(renew.Hold)
		}
		s.requests.markSent(e, now, now.Add(e.ownWait()+s.answerPatience))
	}
	return frame
}

// streamBroke stages what was not answered again, except heartbeats: the resume does their work.
func (s *state) streamBroke() {
	s.requests.takeOut(func(e *entry) bool { _, is := e.request.(keepAlive); return is })
	clear(s.retriesDue)
	s.heartbeat = 0
	s.requests.stageAllAgain()
	if IsPlanted(RetryNewID) {
		s.askAgainUnderNewIDs(func(*entry) bool { return true })
	}
}

// end is the end of the session: each holder and each waiter is told. Acquires that it never sent are kept.
func (s *state) end(reason string, keepsUnsent bool) {
	for _, hold := range s.holds {
		hold.end(reason)
	}
	clear(s.holds)
	clear(s.releasing)
	clear(s.converting)
	clear(s.watched)
	clear(s.renewed)
	isOver := func(e *entry) bool { return !(keepsUnsent && e.isAcquire() && !e.wasSent) }
	for _, e := range s.requests.takeOut(isOver) {
		s.complete(e, outcomeIfLost(e, reason))
	}
	s.leases = nil
	s.opens = 0
	s.heartbeat = 0
	clear(s.retriesDue)
}

func (s *state) complete(e *entry, outcome Outcome) {
	if caller := e.caller; caller != nil {
		e.caller = nil
		s.outputs = append(s.outputs, Completed{caller, outcome})
	}
	if s.requests.isEmpty() {
		s.callersWaitUntil = Never
	}
}

// settle takes a request out, and tells its caller.
func (s *state) settle(id uint64, outcome Outcome) {
	if e := s.requests.settle(id); e != nil {
		s.noteSettled(e)
		s.complete(e, outcome)
	}
}

func (s *state) noteSettled(e *entry) {
	switch request := e.request.(type) {
	case *Convert:
		s.stopConverting(request.Hold)
	case *Release:
		if s.releasing[request.Hold.key] != nil {
			delete(s.releasing, request.Hold.key)
			s.forgetLease(request.Hold)
		}
	case *Renew:
		if e.caller == nil {
			request.Hold.isRenewing = false
		}
	}
}

func (s *state) forgetHold(hold *Hold) {
	if s.holds[hold.key] == hold {
		delete(s.holds, hold.key)
		s.unwatch(hold)
		s.forgetLease(hold)
	}
}

func (s *state) forgetLease(hold *Hold) {
	if s.leases == nil {
		return
	}
	// Guards that entered the hold again may still need its lease.
	if hold.lease != hold.key.entry || hold.wasEntered {
		for _, others := range []map[holdKey]*Hold{s.holds, s.releasing} {
			for _, other := range others {
				if other.lease == hold.lease {
					return
				}
			}
		}
	}
	s.leases.Ended(hold.lease)
}

func (s *state) holdsThat(isMeant func(*Hold) bool) []*Hold {
	var meant []*Hold
	for _, hold := range s.holds {
		if isMeant(hold) {
			meant = append(meant, hold)
		}
	}
	return meant
}

func (s *state) endHolds(reason string, isMeant func(*Hold) bool) {
	for _, hold := range s.holdsThat(isMeant) {
		hold.end(reason)
		s.forgetHold(hold)
	}
}

// enteredBy finds the hold that an acquire has entered again, if its lease is known.
func (s *state) enteredBy(acquire uint64, name string) *Hold {
	for _, holds := range []map[holdKey]*Hold{s.holds, s.releasing} {
		for _, hold := range holds {
			if hold.key.acquire == acquire && hold.Name == name && hold.ValidUntil() > 0 {
				return hold
			}
		}
	}
	return nil
}

// watch makes that the loss is reported also if no message tells it.
func (s *state) watch(hold *Hold) {
	if s.holds[hold.key] == hold {
		s.watched[hold] = true
		s.watchAgain(hold)
	}
}

func (s *state) watchAgain(hold *Hold) {
	if s.watched[hold] {
		s.watchedUntil = min(s.watchedUntil, hold.ValidUntil())
	}
}

func (s *state) unwatch(hold *Hold) {
	delete(s.watched, hold)
	delete(s.renewed, hold)
}

func (s *state) checkWatched(now Time) {
	if now < s.watchedUntil {
		return
	}
	s.watchedUntil = Never
	for hold := range s.watched {
		if _, failure := hold.Read(now); failure != nil {
			delete(s.watched, hold)
		} else {
			s.watchedUntil = min(s.watchedUntil, hold.ValidUntil())
		}
	}
}

func (s *state) renewByItself(hold *Hold, ttl time.Duration, now Time) {
	hold.renews = ttl
	hold.renewalDue = now.Add(ttl / renewalsPerTTL)
	s.renewed[hold] = true
	s.renewalsDueFrom = min(s.renewalsDueFrom, hold.renewalDue)
}

// stageDue stages heartbeats, renewals and retries whose time has come.
func (s *state) stageDue(now Time) {
	s.stageHeartbeat(now)
	if s.renewalsDueFrom <= now {
		s.stageRenewals(now)
	}
	for id, due := range s.retriesDue {
		if due <= now {
			delete(s.retriesDue, id)
			s.requests.stageAgain(id)
		}
	}
}

func (s *state) stageHeartbeat(now Time) {
	if s.leases != nil && s.heartbeat == 0 && s.leases.HeartbeatDue() <= now {
		s.heartbeat = s.requests.stage(&entry{request: keepAlive{}})
	}
}

func (s *state) stageRenewals(now Time) {
	s.renewalsDueFrom = Never
	for hold := range s.renewed {
		if hold.Loss.Reason() != "" {
			delete(s.renewed, hold)
			continue
		}
		if hold.renewalDue <= now {
			hold.renewalDue = now.Add(hold.renews / renewalsPerTTL)
			// One is under way at a time.
			if !hold.isRenewing {
				hold.isRenewing = true
				ttl := uint64(hold.renews / time.Millisecond)
				s.ask(&entry{request: &Renew{Hold: hold, TTLMs: &ttl}})
			}
		}
		s.renewalsDueFrom = min(s.renewalsDueFrom, hold.renewalDue)
	}
}

// letCallersGo is for callers who have waited as long as they wanted to. What they asked for goes on until they abandon
// it.
func (s *state) letCallersGo(now Time) {
	if now < s.callersWaitUntil {
		return
	}
	s.callersWaitUntil = Never
	for _, id := range s.requests.ids() {
		e := s.requests.get(id)
		if e == nil || e.caller == nil {
			continue
		}
		if e.caller.WaitsUntil <= now {
			s.complete(e, failed(s.unavailable(e.wasSent)))
		} else {
			s.callersWaitUntil = min(s.callersWaitUntil, e.caller.WaitsUntil)
		}
	}
}

func (s *state) unavailable(mayHaveHappened bool) *Failure {
	var words []string
	for _, address := range slices.Sorted(maps.Keys(s.errors)) {
		words = append(words, fmt.Sprintf("%s: %s", address, s.errors[address]))
	}
	if len(words) == 0 {
		words = []string{"the request is still on its way"}
	}
	return &Failure{Kind: Unavailable, Message: strings.Join(words, "; "), MayHaveHappened: mayHaveHappened}
}

func (s *state) nextDue() Time {
	due := min(s.requests.answersDueFrom, s.renewalsDueFrom)
	for _, retry := range s.retriesDue {
		due = min(due, retry)
	}
	if s.leases != nil && s.heartbeat == 0 {
		due = min(due, s.leases.HeartbeatDue())
	}
	return due
}

// outcomeIfLost is what a request comes to if its hold, or its session, has ended.
func outcomeIfLost(e *entry, reason string) Outcome {
	switch {
	case e.isRelease():
		// The end of the session freed the lock.
		return Outcome{Released: pb.ReleaseOutcome_RELEASE_OUTCOME_EXPIRED}
	case e.isClose():
		return Outcome{}
	case reason == "session_closed" && e.hold() == nil:
		return failed(&Failure{Kind: Closed})
	default:
		return failed(lost(reason))
	}
}
