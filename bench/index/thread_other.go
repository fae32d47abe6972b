//go:build !linux

package main

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// ofThread asks for the usage of the process. Kernels other than Linux do not tell
// of one thread, and where a measurement has but one core for all of Go, that is
// about the same.
const ofThread = unix.RUSAGE_SELF

// yield lets another goroutine have the core, if one wants it.
func yield() { runtime.Gosched() }
