//go:build !unix

package holdfast

import "os"

func isReadableByOthers(os.FileInfo) bool { return false }
