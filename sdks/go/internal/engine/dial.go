package engine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"holdfast/sdks/go/internal/core"
)

const (
	connectTimeout = time.Second
	// frameBytesMax is what a node sends at most.
	frameBytesMax = 17 << 20
	// A fixed window saves the pings by which gRPC would measure one.
	windowBytes = 1 << 20
	alpnGRPC    = "h2"
)

// Security is how a client reaches a cluster that speaks TLS, and proves who it is. Files are read again for each
// connection: certificates are replaced while programs run.
type Security struct {
	// CA is the file of the cluster's authority. With it, the client speaks TLS and nothing else.
	CA string
	// Cert and Key are the files of the client's own certificate.
	Cert, Key string
	// VerifyHost compares the host in the node's certificate, and not the cluster.
	VerifyHost bool
	// Credential returns the token that is shown; nil: none is.
	Credential func() (string, error)

	patience *handshakePatience
}

// Check finds mistakes at once, and not when a node is dialled.
func (s *Security) Check() error {
	if s.CA == "" {
		if s.Cert != "" || s.Key != "" {
			return errors.New("a certificate is of no use without TLS: name the file of the cluster's authority, too")
		}
		return nil
	}
	_, err := s.tlsConfig("localhost")
	return err
}

// alertConn notes that the node refused the client's certificate. In TLS 1.3 the node says so after the handshake.
type alertConn struct {
	net.Conn
	wasRefused *atomic.Bool
}

func (c *alertConn) Read(into []byte) (int, error) {
	count, err := c.Conn.Read(into)
	if alert := tls.AlertError(0); errors.As(err, &alert) {
		c.wasRefused.Store(true)
	}
	return count, err
}

// Node is a connection to a node.
type Node struct {
	*grpc.ClientConn
	wasRefused atomic.Bool
}

const refusedWords = "the node refused the connection; check the files of the certificate and the key"

// deniedError says that the node is not the right one, or does not accept this client.
type deniedError struct{ words string }

func (e *deniedError) Error() string { return e.words }

func contactOf(err error) core.Contact {
	var denied *deniedError
	switch {
	case errors.As(err, &denied):
		return core.Denied
	case errors.Is(err, syscall.ECONNREFUSED):
		return core.Refused
	default:
		return core.NotMade
	}
}

// Dial connects to a node. What it returns serves calls until the connection breaks, and never connects again.
func Dial(ctx context.Context, address string, security *Security) (*Node, error) {
	connected, err := dialNet(ctx, address, security)
	if err != nil {
		return nil, err
	}
	node := &Node{}
	connected = &alertConn{connected, &node.wasRefused}
	var isTaken atomic.Bool
	dialer := func(context.Context, string) (net.Conn, error) {
		if isTaken.Swap(true) {
			return nil, errors.New("the connection is over")
		}
		return connected, nil
	}
	node.ClientConn, err = grpc.NewClient("passthrough:///"+address,
		grpc.WithContextDialer(dialer),
		// TLS, if it is wanted, is below.
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(frameBytesMax)),
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(windowBytes),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0),
	)
	if err != nil {
		_ = connected.Close()
		return nil, err
	}
	return node, nil
}

func dialNet(ctx context.Context, address string, security *Security) (net.Conn, error) {
	connected, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		if isTimeout(err) {
			return nil, errors.New("no connection within a second")
		}
		return nil, err
	}
	if security.CA == "" {
		return connected, nil
	}
	host, _, _ := net.SplitHostPort(address)
	config, err := security.tlsConfig(host)
	if err != nil {
		_ = connected.Close()
		return nil, err
	}
	secured := tls.Client(connected, config)
	if err := security.handshake(ctx, secured); err != nil {
		_ = connected.Close()
		return nil, err
	}
	return secured, nil
}

func (s *Security) handshake(ctx context.Context, secured *tls.Conn) error {
	limited, cancel := context.WithTimeout(ctx, s.patience.duration())
	defer cancel()
	err := secured.HandshakeContext(limited)
	tookTooLong := err != nil && limited.Err() != nil
	if ctx.Err() != nil {
		// The client is closed.
		return ctx.Err()
	}
	s.patience.note(tookTooLong)
	if tookTooLong {
		return errors.New("the node is reached, and does not end the TLS handshake: it may have many to make")
	}
	if err != nil {
		return &deniedError{fmt.Sprintf("no TLS connection: %v; check that the node speaks TLS, and the files of"+
			" the authority, the certificate and the key", err)}
	}
	return nil
}

func isTimeout(err error) bool {
	var timed net.Error
	return errors.As(err, &timed) && timed.Timeout()
}

// WithCredential shows the client's token with a call.
func (s *Security) WithCredential(ctx context.Context) (context.Context, error) {
	if s.Credential == nil {
		return ctx, nil
	}
	credential, err := s.Credential()
	if err != nil {
		return nil, err
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+strings.TrimSpace(credential)), nil
}

func (s *Security) tlsConfig(host string) (*tls.Config, error) {
	text, err := os.ReadFile(s.CA)
	if err != nil {
		return nil, err
	}
	authorities, clusters := x509.NewCertPool(), map[string]bool{}
	if !authorities.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate: name the file of the cluster's authority", s.CA)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: authorities, NextProtos: []string{alpnGRPC}}
	if s.Cert != "" || s.Key != "" {
		certificate, err := tls.LoadX509KeyPair(s.Cert, s.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	config.ServerName = host
	if s.VerifyHost {
		return config, nil
	}
	for _, authority := range certificatesOf(text) {
		for _, uri := range authority.URIs {
			if uri.Scheme == "holdfast" && uri.Path == "/ca" {
				clusters[uri.Host] = true
			}
		}
	}
	if len(clusters) == 0 {
		return nil, fmt.Errorf("%s does not say of which cluster it is: use the authority that `holdfast cert ca` made,"+
			" or compare the host", s.CA)
	}
	// The chain is checked below, against the same authorities, and the cluster instead of the host.
	config.InsecureSkipVerify = true
	if core.IsPlanted(core.TrustAnyNode) {
		return config, nil
	}
	config.VerifyConnection = func(state tls.ConnectionState) error {
		return verifyNode(state.PeerCertificates, authorities, clusters)
	}
	return config, nil
}

func verifyNode(chain []*x509.Certificate, authorities *x509.CertPool, clusters map[string]bool) error {
	if len(chain) == 0 {
		return errors.New("the node shows no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, certificate := range chain[1:] {
		intermediates.AddCert(certificate)
	}
	options := x509.VerifyOptions{Roots: authorities, Intermediates: intermediates}
	if _, err := chain[0].Verify(options); err != nil {
		return err
	}
	for _, uri := range chain[0].URIs {
		if isNode(uri) && clusters[uri.Host] {
			return nil
		}
	}
	return errors.New("the certificate is none of a node of this cluster; check the endpoints")
}

func isNode(uri *url.URL) bool {
	id, isNode := strings.CutPrefix(uri.Path, "/node/")
	isNumber := id != "" && id[0] != '0' && strings.Trim(id, "0123456789") == ""
	return uri.Scheme == "holdfast" && isNode && isNumber
}
