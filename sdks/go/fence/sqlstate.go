package fence

import (
	"errors"
	"regexp"
	"strconv"
)

var kindsOfStates = map[string]Kind{
	"ZF001": Stale,
	"ZF002": Missing,
	"ZF003": Malformed,
	"ZF004": Zero,
	"ZF005": OtherResource,
	"ZF006": BestEffort,
	"ZF007": NotFenceable,
}

var highestSeen = regexp.MustCompile(`, ([0-9]+) has been seen`)

// FromPostgres returns a *[RefusedError] if PostgreSQL refused the token, and the error itself otherwise. The errors of
// pgx and of lib/pq tell their state.
func FromPostgres(err error) error {
	var withState interface{ SQLState() string }
	if !errors.As(err, &withState) {
		return err
	}
	kind, isRefusal := kindsOfStates[withState.SQLState()]
	if !isRefusal {
		return err
	}
	told := &RefusedError{Kind: kind, Message: err.Error()}
	if parts := highestSeen.FindStringSubmatch(err.Error()); parts != nil {
		told.Highest, _ = strconv.ParseUint(parts[1], 10, 64)
	}
	return told
}
