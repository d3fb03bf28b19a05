package core

import (
	"time"

	"google.golang.org/protobuf/proto"
	pb "holdfast/sdks/go/holdfastv1"
)

// Request is what a program asks of a session: one of the types below.
type Request interface {
	// operation returns what goes out under this id.
	operation(id uint64) *pb.Operation
}

type (
	// Acquire asks for one lock.
	Acquire struct{ Fields *pb.AcquireRequest }
	// AcquireAll asks for several locks at one moment.
	AcquireAll struct{ Fields *pb.AcquireAllRequest }
	// Convert asks for another mode of a hold.
	Convert struct {
		Hold   *Hold
		Mode   pb.Mode
		WaitMs uint64
	}
	// Release gives a hold back.
	Release struct{ Hold *Hold }
	// Renew starts the hold's own TTL again. A nil TTL keeps the one that the hold has.
	Renew struct {
		Hold  *Hold
		TTLMs *uint64
	}
	// Proclaim changes the metadata of a hold.
	Proclaim struct {
		Hold     *Hold
		Metadata []byte
	}
	// Transfer hands a hold to a session that waits for it.
	Transfer struct {
		Hold            *Hold
		ToPublicSession string
	}
	// Status reads a lock.
	Status struct{ Name string }

	// openSession is a caller that waits for a session, and asks for nothing else. It never goes out by itself.
	openSession  struct{}
	keepAlive    struct{}
	closeSession struct{}
	cancel       struct {
		target uint64
		tier   pb.Tier
	}
	// releaseGrant gives back what no guard has.
	releaseGrant struct {
		grant   *pb.Grant
		acquire uint64
	}
)

// CanWait says whether a request can stand in a queue.
func CanWait(request Request) bool {
	switch request.(type) {
	case *Acquire, *AcquireAll, *Convert:
		return true
	default:
		return false
	}
}

func (r *Acquire) operation(id uint64) *pb.Operation {
	fields := proto.Clone(r.Fields).(*pb.AcquireRequest)
	fields.RequestId = id
	return &pb.Operation{Kind: &pb.Operation_Acquire{Acquire: fields}}
}

func (r *AcquireAll) operation(id uint64) *pb.Operation {
	fields := proto.Clone(r.Fields).(*pb.AcquireAllRequest)
	fields.RequestId = id
	return &pb.Operation{Kind: &pb.Operation_AcquireAll{AcquireAll: fields}}
}

func (r *Convert) operation(id uint64) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_Convert{Convert: &pb.ConvertRequest{
		RequestId: id, Name: r.Hold.Name, Token: r.Hold.Held().Token, AcquireRequestId: r.Hold.key.acquire,
		Mode: r.Mode, WaitMs: r.WaitMs, Policy: pb.Policy_POLICY_DETECT, Tier: r.Hold.tier(),
	}}}
}

func (r *Release) operation(id uint64) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_Release{Release: &pb.ReleaseRequest{
		RequestId: id, Name: r.Hold.Name, Token: r.Hold.Held().Token, AcquireRequestId: r.Hold.key.acquire,
		Tier: r.Hold.tier(),
	}}}
}

func (r *releaseGrant) operation(id uint64) *pb.Operation {
	isBestEffort := r.grant.GetGuarantee() != pb.Guarantee_GUARANTEE_LINEARIZABLE
	return &pb.Operation{Kind: &pb.Operation_Release{Release: &pb.ReleaseRequest{
		RequestId: id, Name: r.grant.GetName(), Token: r.grant.GetToken(), AcquireRequestId: r.acquire,
		Tier: tierOf(isBestEffort),
	}}}
}

func (r *Renew) operation(id uint64) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_Renew{Renew: &pb.RenewRequest{
		RequestId: id, Name: r.Hold.Name, Token: r.Hold.Held().Token, AcquireRequestId: r.Hold.key.acquire,
		TtlMs: r.TTLMs, Tier: r.Hold.tier(),
	}}}
}

func (r *Proclaim) operation(id uint64) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_Proclaim{Proclaim: &pb.ProclaimRequest{
		RequestId: id, Name: r.Hold.Name, Token: r.Hold.Held().Token, AcquireRequestId: r.Hold.key.acquire,
		Metadata: r.Metadata, Tier: r.Hold.tier(),
	}}}
}

func (r *Transfer) operation(id uint64) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_Transfer{Transfer: &pb.TransferRequest{
		RequestId: id, Name: r.Hold.Name, Token: r.Hold.Held().Token, ToPublicSessionId: r.ToPublicSession,
		Tier: r.Hold.tier(),
	}}}
}

func (r *Status) operation(id uint64) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_Status{Status: &pb.StatusRequest{RequestId: id, Name: r.Name}}}
}

func (openSession) operation(uint64) *pb.Operation { return nil }

func (keepAlive) operation(id uint64) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_KeepAlive{KeepAlive: &pb.KeepAliveRequest{RequestId: id}}}
}

func (closeSession) operation(id uint64) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_Close{Close: &pb.CloseSessionRequest{RequestId: id}}}
}

func (r *cancel) operation(id uint64) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_Cancel{Cancel: &pb.CancelRequest{
		RequestId: id, Target: r.target, Tier: r.tier,
	}}}
}

// Call is a request of the program. Its Resolve gets the outcome, once.
type Call struct {
	// WaitsUntil is when the caller gives up.
	WaitsUntil Time
	// Renews is the TTL that the library keeps renewing; 0: none.
	Renews   time.Duration
	Resolve  func(Outcome)
	OnQueued func(position uint64)
}

// Outcome is what became of a request.
type Outcome struct {
	// Failure is nil if the request was carried out.
	Failure *Failure
	// Holds are those of an acquire.
	Holds []*Hold
	// Released is what became of a release.
	Released pb.ReleaseOutcome
	// Token is that of the next holder after a transfer.
	Token uint64
	// Status is the answer to a read.
	Status *pb.StatusResponse
}

func failed(failure *Failure) Outcome { return Outcome{Failure: failure} }

// entry is a request that has no answer yet.
type entry struct {
	request Request
	// caller is nil once no caller waits for the answer.
	caller *Call
	// number is that under which the program knows the request; 0 if the program does not.
	number uint64
	// renews is the TTL that the library keeps renewing; 0: none.
	renews      time.Duration
	isAbandoned bool
	isParked    bool
	wasSent     bool
	// wasSentBefore: an earlier stream carried it, too.
	wasSentBefore bool
	// firstSentAt counts for leases: a retry may get the answer that was made for the first sending.
	firstSentAt Time
	isAnswerDue bool
	answerDue   Time
}

func (e *entry) hold() *Hold {
	switch request := e.request.(type) {
	case *Convert:
		return request.Hold
	case *Release:
		return request.Hold
	case *Renew:
		return request.Hold
	case *Proclaim:
		return request.Hold
	case *Transfer:
		return request.Hold
	default:
		return nil
	}
}

func (e *entry) isAcquire() bool {
	switch e.request.(type) {
	case *Acquire, *AcquireAll:
		return true
	default:
		return false
	}
}

func (e *entry) isConvert() bool { _, is := e.request.(*Convert); return is }
func (e *entry) isClose() bool   { _, is := e.request.(closeSession); return is }

func (e *entry) isRelease() bool {
	switch e.request.(type) {
	case *Release, *releaseGrant:
		return true
	default:
		return false
	}
}

// isBestEffort says whether the efficiency tier answers.
func (e *entry) isBestEffort() bool {
	if hold := e.hold(); hold != nil {
		return hold.IsBestEffort
	}
	switch request := e.request.(type) {
	case *Acquire:
		return request.Fields.GetTier() == pb.Tier_TIER_EFFICIENCY
	case *AcquireAll:
		return request.Fields.GetTier() == pb.Tier_TIER_EFFICIENCY
	case *cancel:
		return request.tier == pb.Tier_TIER_EFFICIENCY
	case *releaseGrant:
		return request.grant.GetGuarantee() != pb.Guarantee_GUARANTEE_LINEARIZABLE
	default:
		return false
	}
}

func (e *entry) nameCount() int {
	if all, is := e.request.(*AcquireAll); is {
		return max(1, len(all.Fields.GetMembers()))
	}
	return 1
}

// ownWait is how long the answer may take because the request is to wait.
func (e *entry) ownWait() time.Duration {
	var ms uint64
	switch request := e.request.(type) {
	case *Acquire:
		ms = request.Fields.GetWaitMs()
	case *AcquireAll:
		ms = request.Fields.GetWaitMs()
	case *Convert:
		ms = request.WaitMs
	}
	return time.Duration(min(ms, spanMsMax)) * time.Millisecond
}

// mayWait says whether the caller still waits when the request may be sent again. One that may have been carried out must
// be.
func (e *entry) mayWait(now Time, told time.Duration) bool {
	return e.wasSentBefore || e.caller == nil || now.Add(longestAfter(told)) < e.caller.WaitsUntil
}

// isWorthRetrying says whether a node that sent the request back is to get it again.
func (e *entry) isWorthRetrying() bool {
	if CanWait(e.request) {
		return !e.isAbandoned
	}
	switch e.request.(type) {
	case *Renew, *Proclaim, *Status:
		return e.caller != nil
	default:
		return true
	}
}
