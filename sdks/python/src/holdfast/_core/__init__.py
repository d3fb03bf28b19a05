"""What the client decides, without I/O: no clock, no sockets, no threads. Time is an argument, in nanoseconds.

`session` is the state machine: inputs are `handle_*(now, …)`, and what has to be done comes out as data. The library's
thread drives it with real sockets and clocks; tests drive it with their own.
"""
