package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// other reads CLOCK_BOOTTIME; the wall clock where there is none.
var other = func() func() time.Duration {
	if _, err := bootTime(); err != nil {
		return func() time.Duration { return time.Duration(time.Now().UnixNano()) }
	}
	return func() time.Duration {
		now, _ := bootTime()
		return now
	}
}()

func bootTime() (time.Duration, error) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
	return time.Duration(now.Nano()), err
}
