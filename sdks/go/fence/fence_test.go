package fence

import (
	"os"
	"testing"
)

// The rule itself is tested by the vectors of the conformance suite.
func TestTheSQLAndTheScriptAreThoseOfTheRustLibrary(t *testing.T) {
	for path, copied := range map[string]string{
		"../../../crates/fence/sql/postgres.sql":    PostgresMigration,
		"../../../crates/fence/src/redis/write.lua": RedisScript,
	} {
		original, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(original) != copied {
			t.Errorf("copy %s again", path)
		}
	}
}
