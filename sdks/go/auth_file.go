package holdfast

import (
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"

	"holdfast/sdks/go/internal/core"
)

// authFileBytesMax: more is no token, and is not read.
const authFileBytesMax = 4096

var accessToken = regexp.MustCompile(`^hft_[0-9a-f]{16}_[A-Za-z0-9_-]{43}$`)

// authFileCredential reads the file again whenever it is called. If the file cannot be used then, the token that was read
// before stays in use.
func authFileCredential(path string, log *slog.Logger) (func() (string, error), error) {
	known, err := readAuthFile(path)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	return func() (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if core.IsPlanted(core.CredentialOnce) {
			return known, nil
		}
		if token, err := readAuthFile(path); err != nil {
			log.Warn("the token that was read before stays in use", "error", err)
		} else {
			known = token
		}
		return known, nil
	}, nil
}

// readAuthFile returns the token in a file. Its errors do not repeat what is in the file.
func readAuthFile(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("cannot read the token: %w", err)
	}
	if isReadableByOthers(info) {
		return "", fmt.Errorf("%s has a token that other users of this machine can read: `chmod 600 %s`", path, path)
	}
	noToken := fmt.Errorf(
		"%s has no token: it must have one line, hft_<16 hexadecimal digits>_<43 letters, digits, - or _>", path,
	)
	if info.Size() > authFileBytesMax {
		return "", noToken
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot read the token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if !accessToken.MatchString(token) {
		return "", noToken
	}
	return token, nil
}
