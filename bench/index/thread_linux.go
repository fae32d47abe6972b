package main

import "golang.org/x/sys/unix"

// ofThread asks for the usage of the thread that asks.
const ofThread = unix.RUSAGE_THREAD

// yield lets another thread have the core, if one wants it. The runtime knows of
// the call: a loop of raw ones could not be stopped for a collection, which the
// other thread may be waiting for.
func yield() {
	_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}
