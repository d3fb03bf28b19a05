package core

import (
	"maps"
	"slices"
)

// inFlight has the requests of a session that have no answer yet. Ids start at 1 and rise by one.
//
// An acquire that is known to wait counts as answered: the nodes find it by its wait, and later by its hold.
type inFlight struct {
	lastID  uint64
	row     map[uint64]*entry
	waiting map[uint64]*entry
	// order has the ids of row as they were reserved, and those that were settled since.
	order  []uint64
	staged map[uint64]bool
	// stagedOrder has the ids of staged, and those that were settled since.
	stagedOrder []uint64
	// answersDueFrom: no request should have been answered before then. It may be too early, and is set right when it is
	// reached.
	answersDueFrom Time
}

func newInFlight() *inFlight {
	return &inFlight{
		row: map[uint64]*entry{}, waiting: map[uint64]*entry{}, staged: map[uint64]bool{}, answersDueFrom: Never,
	}
}

func (f *inFlight) reserveID() uint64 {
	f.lastID++
	return f.lastID
}

func (f *inFlight) stage(e *entry) uint64 {
	id := f.park(e)
	f.stageAgain(id)
	return id
}

// park takes in a new request that must not go out yet.
func (f *inFlight) park(e *entry) uint64 {
	id := f.reserveID()
	e.isParked = true
	f.row[id] = e
	f.order = append(f.order, id)
	return id
}

func (f *inFlight) stageAgain(id uint64) {
	if e := f.get(id); e != nil {
		e.isParked, e.isAnswerDue = false, false
		if !f.staged[id] {
			f.staged[id] = true
			f.stagedOrder = append(f.stagedOrder, id)
		}
	}
}

func (f *inFlight) stageAllAgain() {
	f.answersDueFrom = Never
	for id, e := range f.all() {
		if !e.isParked {
			e.wasSentBefore = e.wasSentBefore || e.wasSent
			f.stageAgain(id)
		}
	}
}

// takeStaged takes the next of those that are staged and may go, in the order of their ids, as far as their names go.
func (f *inFlight) takeStaged(namesMax int, mayGo func(*entry) bool) []uint64 {
	if !slices.IsSorted(f.stagedOrder) {
		slices.Sort(f.stagedOrder)
	}
	var taken, kept []uint64
	names, looked := 0, 0
	for _, id := range f.stagedOrder {
		if e := f.get(id); e != nil && f.staged[id] && !mayGo(e) {
			kept = append(kept, id)
		} else if e != nil && f.staged[id] {
			names += e.nameCount()
			if names > namesMax && len(taken) > 0 {
				break
			}
			taken = append(taken, id)
			delete(f.staged, id)
		}
		looked++
	}
	f.stagedOrder = f.stagedOrder[looked:]
	if len(kept) > 0 {
		f.stagedOrder = append(kept, f.stagedOrder...)
	}
	return taken
}

func (f *inFlight) isEmpty() bool   { return len(f.row) == 0 && len(f.waiting) == 0 }
func (f *inFlight) hasStaged() bool { return len(f.staged) > 0 }

func (f *inFlight) markSent(e *entry, now, answerDue Time) {
	if !e.wasSent {
		e.wasSent, e.firstSentAt = true, now
	}
	e.isAnswerDue, e.answerDue = true, answerDue
	f.answersDueFrom = min(f.answersDueFrom, answerDue)
}

func (f *inFlight) markWaiting(id uint64) {
	if e := f.row[id]; e != nil {
		delete(f.row, id)
		f.waiting[id] = e
	}
}

func (f *inFlight) isWaiting(id uint64) bool { return f.waiting[id] != nil }

// settle removes a request that was answered, or whose answer is no longer needed.
func (f *inFlight) settle(id uint64) *entry {
	e := f.get(id)
	delete(f.staged, id)
	delete(f.row, id)
	delete(f.waiting, id)
	if f.isEmpty() {
		f.answersDueFrom = Never
		f.order = f.order[:0]
	}
	return e
}

// takeOut removes those that are meant, in the order of their ids.
func (f *inFlight) takeOut(isMeant func(*entry) bool) []*entry {
	var taken []*entry
	for _, id := range f.ids() {
		if e := f.get(id); isMeant(e) {
			taken = append(taken, f.settle(id))
		}
	}
	return taken
}

func (f *inFlight) get(id uint64) *entry {
	if e := f.row[id]; e != nil {
		return e
	}
	return f.waiting[id]
}

func (f *inFlight) all() map[uint64]*entry {
	all := maps.Clone(f.row)
	maps.Copy(all, f.waiting)
	return all
}

func (f *inFlight) ids() []uint64 { return slices.Sorted(maps.Keys(f.all())) }

// findCall returns the id of what the program knows under this number; 0 if it is settled.
func (f *inFlight) findCall(number uint64) uint64 {
	if e := f.get(number); e != nil && e.number == number {
		return number
	}
	for id, e := range f.all() {
		if e.number == number {
			return id
		}
	}
	return 0
}

func (f *inFlight) isAnswerOverdue(now Time) bool {
	if f.answersDueFrom <= now {
		f.answersDueFrom = Never
		for _, e := range f.all() {
			if e.isAnswerDue {
				f.answersDueFrom = min(f.answersDueFrom, e.answerDue)
			}
		}
	}
	return f.answersDueFrom <= now
}

// ackedThrough is the id before the oldest request that still needs its answer.
func (f *inFlight) ackedThrough() uint64 {
	for len(f.order) > 0 {
		if e := f.row[f.order[0]]; e != nil && !(e.wasSent && IsPlanted(AckEarly)) {
			return f.order[0] - 1
		}
		f.order = f.order[1:]
	}
	return f.lastID
}
