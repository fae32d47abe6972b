//go:build !linux

package janitor

import (
	"io/fs"
	"time"
)

// lastUse returns when a file was last written.
func lastUse(info fs.FileInfo) time.Time { return info.ModTime() }
