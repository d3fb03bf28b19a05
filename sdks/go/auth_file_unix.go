//go:build unix

package holdfast

import (
	"os"
	"syscall"
)

// isReadableByOthers is like the rule for keys of ssh: what belongs to this user is for this user alone. A file of
// another owner, such as a secret that is mounted into a container, may be readable by its group.
func isReadableByOthers(info os.FileInfo) bool {
	forbidden := os.FileMode(0o007)
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) == os.Geteuid() {
		forbidden = 0o077
	}
	return info.Mode()&forbidden != 0
}
