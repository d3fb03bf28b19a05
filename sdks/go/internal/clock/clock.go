// Package clock has the clock that leases are counted on. It runs on while the machine sleeps.
package clock

import (
	"sync"
	"time"

	"holdfast/sdks/go/internal/core"
)

// resolution: two clocks that differ by less are taken to agree, because they are not read at the same moment.
const resolution = time.Millisecond

// readings is how often the clocks are read again if the process is held up in between.
const readings = 3

var system = func() *counter {
	start := time.Now()
	return newCounter(func() time.Duration { return time.Since(start) }, other)
}()

// Now returns the time. It is monotonic time, and what another clock advanced beyond that: the monotonic clock may stand
// still while the machine sleeps. Too late a time is safe, too early a time is not.
func Now() core.Time { return system.now() }

// counter adds up what the monotonic clock did not count.
type counter struct {
	monotonic, other func() time.Duration

	mu sync.Mutex
	// What the two clocks showed when they were last taken to agree.
	monotonicSeen, otherSeen time.Duration
	// missed stays: a clock that is set forward and back again must not stop this one. It is above 0, so that no time is.
	missed time.Duration
}

func newCounter(monotonic, other func() time.Duration) *counter {
	return &counter{
		monotonic: monotonic, other: other, monotonicSeen: monotonic(), otherSeen: other(), missed: time.Second,
	}
}

func (c *counter) now() core.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	monotonic, other := c.readBoth()
	ahead := (other - c.otherSeen) - (monotonic - c.monotonicSeen)
	if ahead >= resolution || ahead <= -resolution {
		if ahead > 0 {
			c.missed += ahead
		}
		c.monotonicSeen, c.otherSeen = monotonic, other
	}
	return core.Time(monotonic + c.missed)
}

// readBoth reads the two clocks at nearly the same moment. If the process is held up between the readings each time, the
// other clock seems to be ahead. Then the pause counts twice, which is safe.
func (c *counter) readBoth() (monotonic, other time.Duration) {
	for range readings {
		monotonic, other = c.monotonic(), c.other()
		if after := c.monotonic(); after-monotonic < resolution {
			return after, other
		}
	}
	return monotonic, other
}
