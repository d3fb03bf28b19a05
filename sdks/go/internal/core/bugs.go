package core

// Bug is a rule of the protocol that the library can be told to break, if it is built with the tag `planted`. The
// conformance suite must find each.
type Bug string

const (
	// NoMargin trusts leases for their whole time.
	NoMargin Bug = "no-margin"
	// RetryNewID sends what had no answer when the stream broke under another id.
	RetryNewID Bug = "retry-new-id"
	// AckEarly acknowledges a request once it was sent, before its answer came.
	AckEarly Bug = "ack-early"
	// ForgetCancel does not cancel a request whose caller is gone.
	ForgetCancel Bug = "forget-cancel"
	// IgnoreMembers uses only the configured endpoints.
	IgnoreMembers Bug = "ignore-members"
	// IgnoreMap takes no map of the groups, as a client that knows one group only.
	IgnoreMap Bug = "ignore-map"
	// ForgetPosition opens a watch that broke after the first position that it was told, and not after the last.
	ForgetPosition Bug = "forget-position"
	// TrustAnyNode does not check the node's certificate.
	TrustAnyNode Bug = "trust-any-node"
	// CountFailures takes a failure for a sample.
	CountFailures Bug = "count-failures"
	// CredentialOnce reads the client's token once, and not for each connection.
	CredentialOnce Bug = "credential-once"
	// NoClock gives tokens without reading the clock.
	NoClock Bug = "no-clock"
	// Chatty sends heartbeats more often than it has to.
	Chatty Bug = "chatty"
)

// Bugs are all of them.
var Bugs = []Bug{
	NoMargin, RetryNewID, AckEarly, ForgetCancel, IgnoreMembers, IgnoreMap, ForgetPosition, TrustAnyNode,
	CountFailures, CredentialOnce, NoClock, Chatty,
}
