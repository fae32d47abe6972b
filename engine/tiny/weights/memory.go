package weights

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// FreeMemory returns how many bytes there may be for this program, as far as it is told:
// the least of what Linux has available and of the limits that GOMEMLIMIT and a container
// set. The limits are taken whole: what the program has already is not taken off.
// Elsewhere there is no limit.
func FreeMemory() int64 {
	limit := debug.SetMemoryLimit(-1)
	for _, path := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if text, err := os.ReadFile(path); err == nil {
			limit = min(limit, parseBytes(string(text), 1))
		}
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		_, rest, _ := strings.Cut(string(text), "MemAvailable:")
		line, _, _ := strings.Cut(rest, "kB")
		limit = min(limit, parseBytes(line, 1<<10))
	}
	return limit
}

// parseBytes reads a number of units. What is no number ("max") is no limit.
func parseBytes(text string, unit int64) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n > math.MaxInt64/unit {
		return math.MaxInt64
	}
	return n * unit
}

// inBytes writes a size for people.
func inBytes(n int64) string {
	for _, unit := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= unit.size {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(unit.size), unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
