/**
 * What the client decides, without I/O: no clock, no sockets, no threads. Time is an argument, in
 * nanoseconds. This package is internal.
 *
 * <p>{@link holdfast.client.core.Session} is the state machine: inputs are {@code handle…(now, …)},
 * and what has to be done comes out as data. The engine drives it with real streams and clocks;
 * tests drive it with their own.
 */
package holdfast.client.core;
