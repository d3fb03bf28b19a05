//go:build race

package holdfast_test

// Programs that tests build are built as the tests are, so that the dependencies are compiled once.
func init() { buildFlags = []string{"-race"} }
