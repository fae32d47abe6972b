package main

import (
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// clock is the time that has gone by on every clock that matters, for the thread
// that reads it. The thread must be locked.
type clock struct {
	wall    time.Time
	thread  time.Duration // processor time of this thread
	process time.Duration // processor time of all threads, the collector's included
	taken   int64         // times that the kernel took the core from this thread
}

func now() clock {
	thread, process := usage(ofThread), usage(unix.RUSAGE_SELF)
	return clock{time.Now(), cpu(thread), cpu(process), thread.Nivcsw}
}

// since returns the time between two readings.
func (c clock) since(before clock) spent {
	return spent{
		Wall:    c.wall.Sub(before.wall).Seconds(),
		Thread:  (c.thread - before.thread).Seconds(),
		Process: (c.process - before.process).Seconds(),
	}
}

// spent is a time in seconds.
type spent struct {
	Wall    float64 `json:"wall"`
	Thread  float64 `json:"thread"`
	Process float64 `json:"process"`
}

func usage(of int) syscall.Rusage {
	var u syscall.Rusage
	if err := syscall.Getrusage(of, &u); err != nil {
		panic(err) // the only errors are bad arguments
	}
	return u
}

func cpu(u syscall.Rusage) time.Duration { return time.Duration(u.Utime.Nano() + u.Stime.Nano()) }

// threadTime is the processor time of this thread, to the nanosecond.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // the only errors are bad arguments
	}
	return time.Duration(t.Nano())
}

// threadClockCost is the time between two readings of threadTime.
func threadClockCost() time.Duration {
	const n = 10_000
	began := threadTime()
	for range n - 1 {
		threadTime()
	}
	return (threadTime() - began) / n
}

// oneThread keeps the caller on one thread, and all of Go on one core.
func oneThread() {
	runtime.GOMAXPROCS(1)
	runtime.LockOSThread()
}

// live is the heap after a collection; it takes two to empty a pool.
func live() int {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}
