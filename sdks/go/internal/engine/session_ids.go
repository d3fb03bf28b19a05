package engine

import (
	"crypto/rand"
	"encoding/hex"
	"sync"
)

// sessionIDs draws the ids of a client's sessions. Sessions in different groups have the same id, so that a person finds a
// client by one id. No group sees the id of an ended session again: a group whose session was lost takes the newest id, and
// draws one if it has used that. So for a while the ids can differ.
type sessionIDs struct {
	mu     sync.Mutex
	count  uint64
	newest string
}

// ofOneGroup draws the ids of the sessions in one group, one after the other.
func (i *sessionIDs) ofOneGroup() func() string {
	used := uint64(0)
	return func() string {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.count == used {
			i.newest = newSessionID()
			i.count++
		}
		used = i.count
		return i.newest
	}
}

func newSessionID() string {
	var id [16]byte
	// It never fails on the systems that Go runs on.
	_, _ = rand.Read(id[:])
	return hex.EncodeToString(id[:])
}
