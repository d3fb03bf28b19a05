package clock

import (
	"testing"
	"time"

	"holdfast/sdks/go/internal/core"
)

func TestTheClockNeverRunsBackwardsNorBehindTheMonotonicOne(t *testing.T) {
	first, began := Now(), time.Now()
	before := first
	for range 10_000 {
		now := Now()
		if now < before {
			t.Fatalf("the clock went back from %d to %d", before, now)
		}
		before = now
	}
	passed := time.Since(began)
	if counted := time.Duration(Now() - first); counted < passed {
		t.Fatalf("%v by the monotonic clock, and %v by ours", passed, counted)
	}
}

func TestTimeThatOnlyTheOtherClockCountedIsAddedAndStays(t *testing.T) {
	var monotonic, other time.Duration
	clock := newCounter(func() time.Duration { return monotonic }, func() time.Duration { return other })
	start := clock.now()
	pass := func(byMonotonic, byOther, counted time.Duration) {
		t.Helper()
		monotonic, other = monotonic+byMonotonic, other+byOther
		if now := clock.now(); now != start+core.Time(counted) {
			t.Fatalf("%v by the monotonic clock: counted %v, and not %v", monotonic, time.Duration(now-start), counted)
		}
	}
	const second = time.Second
	pass(second, second, second)
	// The machine slept.
	pass(second, 11*second, 12*second)
	// The wall clock is set forward, and back again.
	pass(second, 101*second, 113*second)
	pass(second, -99*second, 114*second)
	pass(5*second, 5*second, 119*second)
	// The clocks are not read at the same moment: that must not add up.
	for range 1000 {
		other += 900 * time.Microsecond
		clock.now()
		other -= 900 * time.Microsecond
		clock.now()
	}
	pass(second, second, 120*second)
}

func TestAPauseBetweenTwoReadingsIsCountedOnce(t *testing.T) {
	var monotonic, other, pause time.Duration
	clock := newCounter(
		func() time.Duration { return monotonic },
		func() time.Duration {
			// The process is held up, and both clocks go on.
			monotonic, other, pause = monotonic+pause, other+pause, 0
			return other
		},
	)
	start := clock.now()
	for turn := range 10 {
		pause = time.Second
		if counted := time.Duration(clock.now() - start); counted != time.Duration(turn+1)*time.Second {
			t.Fatalf("%d s passed, and %v were counted", turn+1, counted)
		}
	}
}
