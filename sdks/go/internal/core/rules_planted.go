//go:build planted

package core

var planted Bug

// Plant makes the library break a rule of the protocol. It is to be called before the first session.
func Plant(bug Bug) { planted = bug }

// IsPlanted says whether the library breaks this rule.
func IsPlanted(bug Bug) bool { return planted == bug }
