package core

import "time"

const (
	firstPause   = 20 * time.Millisecond
	longestPause = 500 * time.Millisecond
	// circuitOpensAfter is longer than an election takes.
	circuitOpensAfter = 3 * time.Second
)

// backoff doubles its pauses, with jitter, so that the clients of a failed leader do not all come back at once.
type backoff struct {
	ceiling time.Duration
	// jitter returns a number from 0 to 1.
	jitter func() float64
}

func (b *backoff) reset() { b.ceiling = firstPause }

func (b *backoff) next() time.Duration {
	half := b.ceiling / 2
	b.ceiling = min(b.ceiling*2, longestPause)
	return half + time.Duration(float64(half)*b.jitter())
}

// longestAfter is the longest pause after what a node has told to wait.
func longestAfter(told time.Duration) time.Duration { return told + longestPause }

// Circuit is the state of a circuit breaker.
type Circuit string

const (
	// CircuitClosed is the normal state.
	CircuitClosed Circuit = "closed"
	// CircuitOpen means that no node has served the session for a while: calls fail at once.
	CircuitOpen Circuit = "open"
	// CircuitHalfOpen is as CircuitOpen, while a node is tried.
	CircuitHalfOpen Circuit = "half_open"
)

type breaker struct {
	state        Circuit
	isFailing    bool
	failingSince Time
}

func (b *breaker) handleTry(now Time) {
	if !b.isFailing {
		b.isFailing, b.failingSince = true, now
	}
	if b.state == CircuitOpen {
		b.state = CircuitHalfOpen
	}
}

func (b *breaker) handleFailure(now Time) {
	if b.state != CircuitClosed || (b.isFailing && now >= b.failingSince.Add(circuitOpensAfter)) {
		b.state = CircuitOpen
	}
}

func (b *breaker) handleSuccess() {
	b.isFailing, b.state = false, CircuitClosed
}
