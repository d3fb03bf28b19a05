package core

import (
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	pb "holdfast/sdks/go/holdfastv1"
)

// RootGroup is the only group of a cluster that tells no map. It has the efficiency tier, whatever the name.
const RootGroup uint32 = 1

const (
	slotCount = 4096
	groupsMax = 64
	// redirectsMax: after so many redirects the caller gets the refusal. The groups do not agree on which of them owns the
	// lock.
	redirectsMax = 8
	// mapPatience is how long a request waits for a newer map before it asks again by the present one.
	mapPatience = 2 * time.Second
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SlotOf returns the slot of a lock name. Nodes and clients compute the same one: the rule can never change.
func SlotOf(name string) uint32 {
	return crc32.Checksum([]byte(tagOf(name)), castagnoli) % slotCount
}

// tagOf returns the text between the first braces that have some, or the whole name.
func tagOf(name string) string {
	for rest := name; ; {
		_, opened, isOpened := strings.Cut(rest, "{")
		tag, behind, isClosed := strings.Cut(opened, "}")
		switch {
		case !isOpened || !isClosed:
			return name
		case tag != "":
			return tag
		}
		rest = behind
	}
}

// groupOfWire: in messages, 0 is the root group.
func groupOfWire(number uint32) uint32 {
	if number == 0 {
		return RootGroup
	}
	return number
}

// groupToWire leaves the root group out, so that a cluster of one group gets what older clients send.
func groupToWire(group uint32) uint32 {
	if group == RootGroup {
		return 0
	}
	return group
}

// GroupMap says which group owns which slots. It gives each slot to exactly one group.
type GroupMap struct {
	epoch   uint64
	owners  [slotCount]uint8
	leaders map[uint32]string
}

// parseGroupMap returns nil if the message is no such map.
func parseGroupMap(told *pb.GroupMap) *GroupMap {
	if told == nil {
		return nil
	}
	groups := &GroupMap{epoch: told.GetEpoch(), leaders: map[uint32]string{}}
	owned, last := uint64(0), uint32(0)
	for _, route := range told.GetGroups() {
		group := route.GetGroup()
		// Each group is told once, in the order of the numbers.
		if group <= last || group > groupsMax {
			return nil
		}
		last = group
		groups.leaders[group] = route.GetLeader()
		for _, run := range route.GetSlots() {
			first, count := uint64(run.GetFirst()), uint64(run.GetCount())
			if count == 0 || first+count > slotCount {
				return nil
			}
			for slot := first; slot < first+count; slot++ {
				if groups.owners[slot] != 0 {
					return nil
				}
				groups.owners[slot] = uint8(group)
			}
			owned += count
		}
	}
	if owned != slotCount {
		return nil
	}
	return groups
}

// Routes says in which group each lock is, as far as the client knows. Its epoch only rises, whatever order the maps come
// in.
type Routes struct {
	// known is nil in a cluster of one group.
	known *GroupMap
}

// Learn takes the map of a welcome if it is not older than the present one. Of two maps with one epoch only the leaders can
// differ, and the later one counts. It returns whether the epoch is higher than before.
func (r *Routes) Learn(told *GroupMap) bool {
	if told == nil || told.epoch < r.Epoch() {
		return false
	}
	isNewer := r.known == nil || told.epoch > r.known.epoch
	if isNewer || told.owners == r.known.owners {
		r.known = told
	}
	return isNewer
}

// Epoch returns the epoch of the map; 0 without one.
func (r *Routes) Epoch() uint64 {
	if r.known == nil {
		return 0
	}
	return r.known.epoch
}

// IsOlderThan says that the group has refused by a newer map. A client without a map needs none.
func (r *Routes) IsOlderThan(refusal *Failure) bool {
	return r.known != nil && r.known.epoch < refusal.MapEpoch
}

// LeaderOf returns the address of the group's leader; empty if it is not known.
func (r *Routes) LeaderOf(group uint32) string {
	if r.known == nil {
		return ""
	}
	return r.known.leaders[group]
}

func (r *Routes) groupOfName(name string) uint32 {
	if r.known == nil {
		return RootGroup
	}
	return uint32(r.known.owners[SlotOf(name)])
}

// GroupOf returns the group of a request for new locks, or of a read. A request about a hold is not routed by this: it goes
// to the session that has the hold. It fails if no single group has all the locks.
func (r *Routes) GroupOf(request Request) (uint32, *Failure) {
	switch request := request.(type) {
	case *Acquire:
		if request.Fields.GetTier() == pb.Tier_TIER_EFFICIENCY {
			return RootGroup, nil
		}
		return r.groupOfName(request.Fields.GetName()), nil
	case *AcquireAll:
		if request.Fields.GetTier() == pb.Tier_TIER_EFFICIENCY {
			return RootGroup, nil
		}
		return r.groupOfAll(request.Fields.GetMembers())
	case *Status:
		return r.groupOfName(request.Name), nil
	default:
		return RootGroup, nil
	}
}

// groupOfAll: an acquire-all without names goes to the root group, and a node refuses it.
func (r *Routes) groupOfAll(members []*pb.Member) (uint32, *Failure) {
	if len(members) == 0 {
		return RootGroup, nil
	}
	first := members[0].GetName()
	group := r.groupOfName(first)
	for _, member := range members[1:] {
		if other := r.groupOfName(member.GetName()); other != group {
			return 0, severalGroups(first, group, member.GetName(), other)
		}
	}
	return group, nil
}

func severalGroups(name string, group uint32, otherName string, other uint32) *Failure {
	words := "%q and %q are in different groups of the cluster (%d and %d), so no call can take both; put the same tag into" +
		" their names, such as \"{order}/%s\" and \"{order}/%s\""
	message := fmt.Sprintf(words, name, otherName, group, other, name, otherName)
	return &Failure{Kind: Rejected, Reason: ReasonName(pb.Reason_REASON_SEVERAL_GROUPS), Message: message}
}

// WithWait returns the request for new locks with another wait, for another try in another group.
func WithWait(request Request, wait time.Duration) Request {
	waitMs := uint64(max(0, wait.Milliseconds()))
	switch request := request.(type) {
	case *Acquire:
		fields := proto.Clone(request.Fields).(*pb.AcquireRequest)
		fields.WaitMs = waitMs
		return &Acquire{Fields: fields}
	case *AcquireAll:
		fields := proto.Clone(request.Fields).(*pb.AcquireAllRequest)
		fields.WaitMs = waitMs
		return &AcquireAll{Fields: fields}
	default:
		return request
	}
}

// IsOfOtherGroup says that the group that was asked does not own the lock, and that nothing was done.
func (f *Failure) IsOfOtherGroup() bool {
	return f != nil && f.Kind == Rejected && f.Reason == ReasonName(pb.Reason_REASON_WRONG_GROUP) && !f.MayHaveHappened
}

// Redirect says what to do with a request that a group has refused.
type Redirect struct {
	// IsOver: the caller gets the refusal.
	IsOver bool
	// Pause is how long to wait before the owner of that time is asked.
	Pause time.Duration
	// MapEpoch ends the pause: the client has a map of this epoch. 0: nothing ends it.
	MapEpoch uint64
}

// Redirects counts the tries of one request that groups refuse because they do not own its lock. A request that was refused
// so was not carried out. So it may be sent to another group, in another session and under another id.
type Redirects struct {
	count   int
	backoff backoff
}

// NewRedirects is for one request; jitter returns numbers from 0 to 1.
func NewRedirects(jitter func() float64) *Redirects {
	return &Redirects{backoff: backoff{ceiling: firstPause, jitter: jitter}}
}

// Next is called when the group `asked` has refused. The group `owner` has the lock by the present map. A client without a
// map knows no other group.
func (r *Redirects) Next(refusal *Failure, asked, owner uint32, routes *Routes) Redirect {
	if !refusal.IsOfOtherGroup() || routes.known == nil || r.count == redirectsMax {
		return Redirect{IsOver: true}
	}
	r.count++
	switch {
	case owner != asked:
		return Redirect{}
	case routes.IsOlderThan(refusal):
		return Redirect{Pause: mapPatience, MapEpoch: refusal.MapEpoch}
	default:
		return Redirect{Pause: r.backoff.next()}
	}
}
