//go:build !planted

package core

// IsPlanted says whether the library breaks a rule on purpose. Only the driver of the conformance suite does.
func IsPlanted(Bug) bool { return false }
