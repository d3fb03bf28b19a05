//go:build !linux

package clock

import "time"

// other reads the wall clock.
func other() time.Duration { return time.Duration(time.Now().UnixNano()) }
