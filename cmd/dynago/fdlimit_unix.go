//go:build unix

package main

import (
	"log/slog"

	"golang.org/x/sys/unix"
)

// raiseFDLimit raises the limit of open files, of which every client needs one.
// What cannot be had is logged, and no reason to stop.
func raiseFDLimit(target int, log *slog.Logger) {
	if target <= 0 {
		return
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		log.Warn("limit of open files is unknown", "error", err)
		return
	}
	want := uint64(target)
	if limit.Cur >= want {
		return
	}
	old := limit
	limit.Cur = want
	limit.Max = max(limit.Max, want)
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		return
	}
	limit = old
	limit.Cur = min(want, limit.Max)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < want {
		log.Warn("limit of open files is lower than wanted: raise it with ulimit -n", "limit", limit.Cur, "wanted", target, "setting", "DYN_FRONTEND_FD_LIMIT_TARGET")
	}
}
