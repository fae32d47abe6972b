package main

import "golang.org/x/sys/unix"

// ofThread asks for the usage of the thread that asks.
const ofThread = unix.RUSAGE_THREAD

// yield lets another thread have the core, if one wants it.
func yield() {
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}
