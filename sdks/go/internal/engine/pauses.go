package engine

import (
	mathrand "math/rand/v2"
	"time"
)

const (
	firstPause   = 20 * time.Millisecond
	longestPause = 500 * time.Millisecond
)

// pauses are those between tries of a call or a stream beside the sessions. They double, with jitter.
type pauses struct{ ceiling time.Duration }

func newPauses() pauses { return pauses{firstPause} }

func (p *pauses) next() time.Duration {
	half := p.ceiling / 2
	p.ceiling = min(p.ceiling*2, longestPause)
	return half + time.Duration(mathrand.Float64()*float64(half))
}
