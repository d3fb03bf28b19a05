// Package core decides what a client does. It has no clock, no sockets and no goroutines: time is an argument.
//
// [Session] is the state machine. Its inputs are the methods Handle…(now, …). What has to be done comes out of
// [Session.TakeOutputs], and what has to be sent out of [Session.NextFrame]. The package engine drives it with a real
// stream and a real clock; tests drive it with their own.
//
// A session is in one group of the cluster. [Routes] and [Redirects] decide which group a request is sent to.
//
// A [Session] is not safe for concurrent use. A [Hold] is: guards read it from any goroutine.
package core
