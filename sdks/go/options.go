package holdfast

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	pb "holdfast/sdks/go/holdfastv1"
	"holdfast/sdks/go/internal/engine"
)

const (
	ownerBytesMax = 256
	// lingerMin: with a shorter one no heartbeat would be answered in time.
	lingerMin = 100 * time.Millisecond
)

// Option configures a [Client].
type Option func(*config)

type config struct {
	ttl, linger    time.Duration
	requestTimeout time.Duration
	application    string
	note           string
	isFixed        bool
	security       engine.Security
	authFile       string
	log            *slog.Logger
	traceparent    func(context.Context) string
}

// WithTTL sets for how long the session, and with it the locks, outlive a client that is gone; by default 30 s.
func WithTTL(ttl time.Duration) Option { return func(c *config) { c.ttl = ttl } }

// WithLinger sets how long the session outlives its broken connection; by default the TTL.
func WithLinger(linger time.Duration) Option { return func(c *config) { c.linger = linger } }

// WithRequestTimeout sets how long a call waits for its answer, beyond its own wait; by default 10 s.
func WithRequestTimeout(timeout time.Duration) Option {
	return func(c *config) { c.requestTimeout = timeout }
}

// WithApplication names the program to people who look at its locks; by default it is the program's file name.
func WithApplication(name string) Option { return func(c *config) { c.application = name } }

// WithNote tells people who look at the session's locks something more.
func WithNote(note string) Option { return func(c *config) { c.note = note } }

// WithoutDiscovery makes that the client uses the given endpoints only.
func WithoutDiscovery() Option { return func(c *config) { c.isFixed = true } }

// TLS has the files by which a client and the nodes know each other. They are read again for each connection.
type TLS struct {
	// CA is the file of the cluster's authority.
	CA string
	// Cert and Key are the files of the client's own certificate, if it has one.
	Cert, Key string
	// VerifyHost compares the host in the node's certificate, and not the cluster.
	VerifyHost bool
}

// WithTLS makes that the client speaks TLS, and nothing else.
func WithTLS(files TLS) Option {
	return func(c *config) {
		c.security.CA, c.security.Cert, c.security.Key = files.CA, files.Cert, files.Key
		c.security.VerifyHost = files.VerifyHost
	}
}

// WithAuthFile shows the token in this file. The file is read again for each connection, and must not be readable by
// other users.
func WithAuthFile(path string) Option { return func(c *config) { c.authFile = path } }

// WithCredential shows what the function returns. It is called for each connection, by several goroutines at a time.
func WithCredential(credential func() (string, error)) Option {
	return func(c *config) { c.security.Credential = credential }
}

// WithLogger sets where the client logs to; by default it is [slog.Default].
func WithLogger(log *slog.Logger) Option { return func(c *config) { c.log = log } }

// WithTraceparent says how to read the present span from a context, as the W3C's `traceparent` writes it. A node that
// exports spans then records what becomes of each Lock call. With OpenTelemetry:
//
//	holdfast.WithTraceparent(func(ctx context.Context) string {
//		carrier := propagation.MapCarrier{}
//		propagation.TraceContext{}.Inject(ctx, carrier)
//		return carrier["traceparent"]
//	})
func WithTraceparent(read func(context.Context) string) Option {
	return func(c *config) { c.traceparent = read }
}

func newConfig(options []Option) (*config, error) {
	c := &config{ttl: 30 * time.Second, requestTimeout: 10 * time.Second, log: slog.Default()}
	for _, option := range options {
		option(c)
	}
	if c.linger != 0 && c.linger < lingerMin {
		return nil, errors.New("the linger time is below 100 ms; take a longer one, or none: then it is the TTL")
	}
	if c.authFile != "" {
		credential, err := authFileCredential(c.authFile, c.log)
		if err != nil {
			return nil, err
		}
		c.security.Credential = credential
	}
	if err := c.security.Check(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *config) settings() *pb.OpenSessionRequest {
	application := c.application
	if application == "" {
		application = filepath.Base(os.Args[0])
	}
	host, _ := os.Hostname()
	settings := &pb.OpenSessionRequest{
		TtlMs: uint64(c.ttl.Milliseconds()),
		Owner: &pb.Owner{
			Application: cut(application), Host: cut(host), Pid: uint32(os.Getpid()), Note: cut(c.note),
		},
	}
	if c.linger != 0 {
		linger := uint64(c.linger.Milliseconds())
		settings.LingerMs = &linger
	}
	return settings
}

func cut(text string) string {
	text = strings.ToValidUTF8(text, "?")
	return strings.ToValidUTF8(text[:min(len(text), ownerBytesMax)], "")
}
