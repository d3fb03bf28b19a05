package engine

import (
	"sync"
	"time"
)

// shortestHandshake is what a node has for a TLS handshake at first.
const shortestHandshake = time.Second

// handshakePatience says how long a node may take over a TLS handshake. A node whose clients all come back at one moment
// makes their handshakes one after another. Clients that gave up after a fixed time would make it work for nothing.
type handshakePatience struct {
	longest time.Duration

	mu  sync.Mutex
	now time.Duration
}

// newHandshakePatience is for a client whose sessions have this TTL: another node must have time to answer before the
// lease ends.
func newHandshakePatience(ttl time.Duration) *handshakePatience {
	return &handshakePatience{longest: max(ttl/3, shortestHandshake), now: shortestHandshake}
}

func (p *handshakePatience) duration() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// note is called after a handshake, or an attempt that took too long.
func (p *handshakePatience) note(tookTooLong bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if tookTooLong {
		p.now = min(p.now*2, p.longest)
	} else {
		p.now = shortestHandshake
	}
}
