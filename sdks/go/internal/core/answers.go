package core

import (
	"slices"
	"time"

	pb "holdfast/sdks/go/holdfastv1"
)

// verdict is what a frame means for the stream it came on. Of several the one with the highest rank counts.
type verdict struct {
	rank   verdictRank
	leader string
	words  string
}

type verdictRank int

const (
	goOn verdictRank = iota
	move
	moveToLeader
	// sessionLost is what an answer was refused with. It ranks below a notice of the same frame, which tells more.
	sessionLost
	sessionLostByNotice
	sessionClosed
)

const (
	unknownWords  = "an answer that this version does not know"
	unfittingWord = "an answer that does not fit its request"
)

func moveTo(leader, words string) verdict {
	if leader == "" {
		return verdict{rank: move, words: words}
	}
	return verdict{rank: moveToLeader, leader: leader, words: words}
}

// isAboutNode says whether another node has to serve the session.
func isAboutNode(reason pb.Reason) bool {
	switch reason {
	case pb.Reason_REASON_NOT_LEADER, pb.Reason_REASON_NO_QUORUM, pb.Reason_REASON_SHUTTING_DOWN,
		pb.Reason_REASON_OUT_OF_SPACE, pb.Reason_REASON_AUDIT_UNAVAILABLE:
		return true
	default:
		return false
	}
}

// onFrame takes in the whole frame, whatever its first answers say: what is dropped here is not told again.
func (s *state) onFrame(now Time, answers []*pb.Answer, notices []*pb.Notice) verdict {
	strongest := verdict{}
	note := func(it verdict) {
		if it.rank > strongest.rank {
			strongest = it
		}
	}
	for _, answer := range answers {
		note(s.onAnswer(now, answer))
	}
	for _, notice := range notices {
		note(s.onNotice(notice))
	}
	return strongest
}

func (s *state) onAnswer(now Time, answer *pb.Answer) verdict {
	id := answer.GetRequestId()
	told := verdict{}
	if failure := answer.GetFailure(); failure != nil {
		told = s.onFailure(now, id, failure)
	} else if answer.GetResult() == nil {
		s.settle(id, failed(unknownAnswer(unknownWords)))
	} else {
		s.noteTime(id, answer)
		told = s.onResult(now, id, answer)
	}
	if s.heartbeat == id && s.requests.get(id) == nil {
		s.heartbeat = 0
	}
	return told
}

// noteTime takes the answer as a sample. The time of a read is in no entry of the log. And a principal that was revoked
// may still give up what it has, which does not keep its session alive.
func (s *state) noteTime(id uint64, answer *pb.Answer) {
	e := s.requests.get(id)
	if e == nil || !e.wasSent || s.leases == nil {
		return
	}
	var logicalMs uint64
	switch result := answer.GetResult().(type) {
	case *pb.Answer_KeepAlive:
		logicalMs = result.KeepAlive.GetLogicalTimeMs()
	case *pb.Answer_Acquire:
		logicalMs = result.Acquire.GetLogicalTimeMs()
	case *pb.Answer_Renew:
		logicalMs = result.Renew.GetLogicalTimeMs()
	case *pb.Answer_Proclaim:
		logicalMs = result.Proclaim.GetLogicalTimeMs()
	case *pb.Answer_Transfer:
		logicalMs = result.Transfer.GetLogicalTimeMs()
	default:
		return
	}
	if e.isBestEffort() {
		s.leases.AnsweredBestEffort(e.firstSentAt, logicalMs)
	} else {
		s.leases.Answered(e.firstSentAt, logicalMs)
	}
}

func (s *state) onNotice(notice *pb.Notice) verdict {
	switch kind := notice.GetKind().(type) {
	case *pb.Notice_Queued:
		id := kind.Queued.GetRequestId()
		// The answer to a convert is not found again by what it holds: it stays unacknowledged.
		if e := s.requests.get(id); e != nil && e.isAcquire() {
			if e.caller != nil {
				s.outputs = append(s.outputs, Queued{e.caller, kind.Queued.GetPosition()})
			}
			s.requests.markWaiting(id)
		}
	case *pb.Notice_HoldEnded:
		s.onHoldEnded(kind.HoldEnded)
	case *pb.Notice_SessionEnded:
		reason := lossOf(kind.SessionEnded.GetReason())
		if reason == "hold_ttl" {
			reason = "session_expired"
		}
		return verdict{rank: sessionLostByNotice, words: reason}
	case *pb.Notice_LeaderMoved:
		leader := kind.LeaderMoved.GetLeader()
		if leader != "" {
			s.leaderLost("leader_changed")
		}
		return moveTo(leader, "the leader moved")
	case *pb.Notice_MembersChanged:
		s.endpointsTold = kind.MembersChanged.GetEndpoints()
	}
	return verdict{}
}

func (s *state) onHoldEnded(ended *pb.HoldEnded) {
	acquire, token := ended.GetAcquireRequestId(), ended.GetToken()
	if name := ended.GetName(); name != "" {
		s.endHolds(lossOf(ended.GetReason()), func(hold *Hold) bool {
			return hold.key.acquire == acquire && hold.Name == name
		})
		return
	}
	// It was lost while no notice could come. Readers share a token, so of them the acquire is told as well.
	s.endHolds("ended", func(hold *Hold) bool {
		held := hold.Held()
		if held.Token != token || hold.IsBestEffort {
			return false
		}
		if held.Mode == pb.Mode_MODE_SHARED {
			return hold.key.acquire == acquire
		}
		return acquire == 0
	})
}

func (s *state) onFailure(now Time, id uint64, failure *pb.Failure) verdict {
	s.ignoreOtherLeader(failure)
	leader, words := failure.GetLeader(), failure.GetMessage()
	e := s.requests.get(id)
	if IsPlanted(CountFailures) && e != nil && s.leases != nil {
		s.leases.Answered(e.firstSentAt, 0)
	}
	if failure.GetReason() == pb.Reason_REASON_UNKNOWN_SESSION {
		return verdict{rank: sessionLost, words: "session_expired"}
	}
	if failure.GetRetryable() {
		if isAboutNode(failure.GetReason()) {
			return moveTo(leader, words)
		}
		told := retryAfter(failure)
		if e == nil || told == 0 || e.mayWait(now, told) {
			s.onSentBack(now.Add(told), id, e)
			return verdict{}
		}
	}
	if e == nil {
		return verdict{}
	}
	if failure.GetReason() == pb.Reason_REASON_ANSWER_DISCARDED && s.requests.isWaiting(id) {
		s.settle(id, failed(waitEndedUnseen(e, now)))
		return verdict{}
	}
	switch e.request.(type) {
	case keepAlive:
		// A session that may not even be kept alive is better resumed elsewhere.
		return moveTo(leader, words)
	case closeSession:
		// Refused or not, the client is done with its session.
		s.settle(id, Outcome{})
		return verdict{rank: sessionClosed}
	}
	if e.wasSentBefore && isDenial(failure.GetReason()) {
		failure.MayHaveHappened = true
		if e.isAcquire() || e.isConvert() {
			s.cancelDeniedCopy(id, e, failure)
			return verdict{}
		}
	}
	s.settle(id, failed(s.refused(id, e, failure)))
	return verdict{}
}

func (s *state) onSentBack(notBefore Time, id uint64, e *entry) {
	if e == nil {
		return
	}
	e.isAnswerDue = false
	if e.isWorthRetrying() {
		s.retriesDue[id] = notBefore.Add(s.backoff.next())
	} else if !e.isAbandoned {
		s.requests.settle(id)
		s.noteSettled(e)
	}
	// The cancel of an abandoned one is on the way, and settles both. Until then an earlier copy may be granted.
}

// retryAfter is how long the node refuses the same request; 0 if it does not say.
func retryAfter(failure *pb.Failure) time.Duration {
	// A node that tells more is asked again all the same: its quota may be another one by then.
	const msMax = 60_000
	return time.Duration(min(failure.GetRetryAfterMs(), msMax)) * time.Millisecond
}

// waitEndedUnseen is for a wait that was acknowledged and ended while there was no stream. Nothing is held by it.
func waitEndedUnseen(e *entry, now Time) *Failure {
	if !e.wasSent || safeEnd(e.firstSentAt, e.ownWait()) <= now {
		return &Failure{Kind: TimedOut}
	}
	// Too early for a timeout: it was granted, and the hold's own time is over.
	return lost("ended")
}

// isDenial tells whether a node said so that knows the caller, but not the history of the request.
func isDenial(reason pb.Reason) bool {
	switch reason {
	case pb.Reason_REASON_PERMISSION_DENIED, pb.Reason_REASON_UNAUTHENTICATED, pb.Reason_REASON_CREDENTIAL_EXPIRED:
		return true
	default:
		return false
	}
}

// cancelDeniedCopy tells the caller, and finds out by a cancel what became of the earlier copy: every client may cancel.
func (s *state) cancelDeniedCopy(id uint64, e *entry, failure *pb.Failure) {
	if e.isAbandoned {
		return
	}
	e.isAbandoned = true
	s.requests.stage(&entry{request: &cancel{target: id, tier: tierOf(e.isBestEffort())}})
	s.complete(e, failed(RejectedBy(failure)))
}

func (s *state) refused(id uint64, e *entry, failure *pb.Failure) *Failure {
	hold, reason := e.hold(), failure.GetReason()
	if e.isAcquire() && reason == pb.Reason_REASON_GRANT_ENDED {
		return lost("ended")
	}
	if hold == nil {
		return RejectedBy(failure)
	}
	isGone := reason == pb.Reason_REASON_NOT_HELD || (e.isConvert() && reason == pb.Reason_REASON_GRANT_ENDED)
	if isGone && !e.isRelease() {
		s.endHolds("ended", func(it *Hold) bool { return it.key.acquire == hold.key.acquire && it.Name == hold.Name })
		hold.end("ended")
		return lost(hold.Loss.Reason())
	}
	mayHaveHappened := failure.GetMayHaveHappened()
	switch e.request.(type) {
	case *Transfer:
		// If it may have been done, the guard stays without a token.
		hold.heldAs.setLeaving(mayHaveHappened && reason != pb.Reason_REASON_NO_SUCH_WAITER)
	case *Renew:
		if !mayHaveHappened && s.leases != nil {
			s.leases.RenewalRefused(hold.lease, id)
		}
	}
	return RejectedBy(failure)
}

func (s *state) onResult(now Time, id uint64, answer *pb.Answer) verdict {
	e := s.requests.settle(id)
	if e == nil {
		return verdict{}
	}
	outcome := failed(unknownAnswer(unfittingWord))
	switch request := e.request.(type) {
	case *Acquire, *AcquireAll:
		if result := answer.GetAcquire(); result != nil {
			outcome = s.acquired(now, id, e, result)
		}
	case *Convert:
		if result := answer.GetAcquire(); result != nil {
			outcome = converted(request.Hold, result)
		}
	case *cancel:
		if result := answer.GetCancel(); result != nil {
			s.onCancelled(request.target, result)
		}
		return verdict{}
	case *Release, *releaseGrant:
		if result := answer.GetRelease(); result != nil {
			outcome = Outcome{Released: result.GetOutcome()}
		}
	case *Renew:
		if result := answer.GetRenew(); result != nil {
			if s.leases != nil {
				s.leases.Renewed(request.Hold.lease, id, result.DeadlineMs)
			}
			s.watchAgain(request.Hold)
			outcome = Outcome{}
		}
	case *Transfer:
		if result := answer.GetTransfer(); result != nil {
			hold := request.Hold
			isSame := func(it *Hold) bool { return it.key.acquire == hold.key.acquire && it.Name == hold.Name }
			s.endHolds("transferred", isSame)
			outcome = Outcome{Token: result.GetToken()}
		}
	case *Proclaim:
		if answer.GetProclaim() != nil {
			outcome = Outcome{}
		}
	case *Status:
		if result := answer.GetStatus(); result != nil {
			outcome = Outcome{Status: result}
		}
	case keepAlive:
		outcome = Outcome{}
	case closeSession:
		s.complete(e, Outcome{})
		return verdict{rank: sessionClosed}
	}
	s.noteSettled(e)
	s.complete(e, outcome)
	return verdict{}
}

func converted(hold *Hold, result *pb.AcquireResponse) Outcome {
	switch outcome := result.GetOutcome().(type) {
	case *pb.AcquireResponse_Granted:
		hold.heldAs.convert(outcome.Granted)
		return Outcome{}
	case *pb.AcquireResponse_Busy:
		return failed(&Failure{Kind: Busy})
	case *pb.AcquireResponse_TimedOut, *pb.AcquireResponse_Cancelled:
		return failed(&Failure{Kind: TimedOut})
	case *pb.AcquireResponse_Deadlock:
		return failed(&Failure{Kind: Deadlock, Cycle: outcome.Deadlock.GetCycle()})
	default:
		return failed(unknownAnswer(unknownWords))
	}
}

func (s *state) acquired(now Time, id uint64, e *entry, result *pb.AcquireResponse) Outcome {
	var grants []*pb.Grant
	switch outcome := result.GetOutcome().(type) {
	case *pb.AcquireResponse_Granted:
		grants = []*pb.Grant{outcome.Granted}
	case *pb.AcquireResponse_AllGranted:
		grants = outcome.AllGranted.GetGrants()
	case *pb.AcquireResponse_Busy:
		return failed(&Failure{Kind: Busy})
	case *pb.AcquireResponse_TimedOut:
		return failed(&Failure{Kind: TimedOut})
	case *pb.AcquireResponse_Deadlock:
		return failed(&Failure{Kind: Deadlock, Cycle: outcome.Deadlock.GetCycle()})
	case *pb.AcquireResponse_Died:
		return failed(&Failure{Kind: Died, SinceMs: outcome.Died.GetSinceMs()})
	case *pb.AcquireResponse_Cancelled:
		// Only this client cancels, and only when the caller is gone.
		return failed(&Failure{Kind: Closed})
	default:
		return failed(unknownAnswer(unknownWords))
	}
	if e.caller == nil || e.isAbandoned {
		s.giveBack(id, grants)
		return failed(&Failure{Kind: Closed})
	}
	return s.takeHolds(now, id, e, grants, result.GetLogicalTimeMs())
}

func (s *state) takeHolds(now Time, id uint64, e *entry, grants []*pb.Grant, atMs uint64) Outcome {
	var since *uint64
	switch request := e.request.(type) {
	case *Acquire:
		since = request.Fields.SinceMs
	case *AcquireAll:
		since = request.Fields.SinceMs
		inOrder, isWhole := inOrderOf(request.Fields.GetMembers(), grants)
		// A retry is told what is still held, and some may have ended in the meantime.
		if !isWhole {
			s.giveBack(id, grants)
			return failed(lost("ended"))
		}
		grants = inOrder
	}
	if since != nil {
		earlier := min(*since, atMs)
		since = &earlier
	}
	loss := &Loss{}
	var holds []*Hold
	for _, grant := range grants {
		hold := s.takeHold(id, e, grant, loss, since)
		if e.renews > 0 {
			s.renewByItself(hold, e.renews, now)
		}
		holds = append(holds, hold)
	}
	return Outcome{Holds: holds}
}

func inOrderOf(members []*pb.Member, grants []*pb.Grant) ([]*pb.Grant, bool) {
	var inOrder []*pb.Grant
	for _, member := range members {
		place := slices.IndexFunc(grants, func(grant *pb.Grant) bool { return grant.GetName() == member.GetName() })
		if place < 0 {
			return nil, false
		}
		inOrder = append(inOrder, grants[place])
	}
	return inOrder, len(grants) == len(members)
}

func (s *state) takeHold(id uint64, e *entry, grant *pb.Grant, loss *Loss, since *uint64) *Hold {
	acquire := grant.GetAcquireRequestId()
	if acquire == 0 {
		acquire = id
	}
	number := id
	if s.holds[holdKey{acquire, id}] != nil {
		number = s.requests.reserveID()
	}
	hold := &Hold{
		Name:         grant.GetName(),
		IsBestEffort: grant.GetGuarantee() != pb.Guarantee_GUARANTEE_LINEARIZABLE,
		SinceMs:      since,
		Loss:         loss,
		key:          holdKey{acquire, number},
		lease:        number,
		call:         e.number,
		leases:       s.leases,
	}
	// A hold that is entered again keeps its lease, with the renewals that are under way.
	var entered *Hold
	if acquire != id {
		entered = s.enteredBy(acquire, grant.GetName())
	}
	if entered != nil {
		entered.wasEntered = true
		hold.heldAs, hold.lease = entered.heldAs, entered.lease
	} else {
		hold.heldAs = &heldAs{}
		s.leases.Granted(number, grant.DeadlineMs, hold.IsBestEffort)
	}
	hold.heldAs.convert(grant)
	s.holds[hold.key] = hold
	return hold
}

// onCancelled settles the request if its own answer has not come, so exactly one of the two leads to a release.
func (s *state) onCancelled(target uint64, result *pb.CancelResponse) {
	e := s.requests.settle(target)
	if e == nil {
		return
	}
	grants := result.GetAllAlreadyGranted().GetGrants()
	if grant := result.GetAlreadyGranted(); grant != nil {
		grants = append(grants, grant)
	}
	if convert, is := e.request.(*Convert); is {
		// The hold is the guard's, whether it was converted or not.
		for _, grant := range grants {
			convert.Hold.heldAs.convert(grant)
		}
	} else {
		s.giveBack(target, grants)
	}
	s.noteSettled(e)
}

// giveBack releases what was granted and is not wanted.
func (s *state) giveBack(id uint64, grants []*pb.Grant) {
	for _, grant := range grants {
		acquire := grant.GetAcquireRequestId()
		if acquire == 0 {
			acquire = id
		}
		s.requests.stage(&entry{request: &releaseGrant{grant: grant, acquire: acquire}})
	}
}
