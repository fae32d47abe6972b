package janitor

import (
	"io/fs"
	"syscall"
	"time"
)

// lastUse returns when a file was last read or written, as far as the file
// system says: mounted with relatime, reads count once a day.
func lastUse(info fs.FileInfo) time.Time {
	used := info.ModTime()
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		used = later(used, time.Unix(s.Atim.Unix()))
	}
	return used
}
