package kvcache

import (
	"fmt"
	"math"
	"strconv"
)

// Settings is what the environment says about the tiers of a worker, under the
// names that users of KVBM know. Sizes are in blocks; 0 = there is no such tier.
type Settings struct {
	Host, Disk, Shared int
	DiskDir            string
	DiskFilter         bool  // blocks go to the disk from their second sighting on
	MinPriority        uint8 // of blocks that leave the device; 0 = any
	Transfers, Batch   int   // of every way; 0 = the default
}

// ParseEnvironment reads the settings by way of lookup, which is os.LookupEnv or
// stands for it. Sizes in DYN_KVBM_*_CACHE_GB are decimal and made to whole
// blocks; DYN_KVBM_*_OVERRIDE_NUM_BLOCKS wins over them. A number of transfers or
// a batch that cannot be is the default; anything else that cannot be is an error
// that names the variable.
func ParseEnvironment(lookup func(string) (string, bool), blockBytes int64) (Settings, error) {
	e := environment{lookup: lookup, blockBytes: blockBytes}
	s := Settings{
		Host:        e.size("DYN_KVBM_CPU_CACHE_GB", "DYN_KVBM_CPU_CACHE_OVERRIDE_NUM_BLOCKS"),
		Disk:        e.size("DYN_KVBM_DISK_CACHE_GB", "DYN_KVBM_DISK_CACHE_OVERRIDE_NUM_BLOCKS"),
		DiskDir:     e.text("DYN_KVBM_DISK_CACHE_DIR"),
		DiskFilter:  true,
		MinPriority: uint8(e.number("DYN_KVBM_HOST_OFFLOAD_PREFIX_MIN_PRIORITY", MaxPriority)),
		Transfers:   e.positive("DYN_KVBM_MAX_CONCURRENT_TRANSFERS"),
		Batch:       e.positive("DYN_KVBM_MAX_TRANSFER_BATCH_SIZE"),
	}
	if _, off := lookup("DYN_KVBM_DISABLE_DISK_OFFLOAD_FILTER"); off || s.Host == 0 {
		s.DiskFilter = false // without a host every block would have to be computed twice
	}
	if e.text("DYN_KVBM_OBJECT_ENABLED") == "1" {
		if s.Shared = e.number("DYN_KVBM_OBJECT_NUM_BLOCKS", math.MaxInt32); s.Shared == 0 && e.err == nil {
			e.err = fmt.Errorf("DYN_KVBM_OBJECT_ENABLED is 1, but DYN_KVBM_OBJECT_NUM_BLOCKS does not say how many blocks there may be")
		}
		if s.Host == 0 && s.Disk == 0 && e.err == nil {
			e.err = fmt.Errorf("DYN_KVBM_OBJECT_ENABLED is 1, which needs a tier above it: set DYN_KVBM_CPU_CACHE_GB or DYN_KVBM_DISK_CACHE_GB")
		}
	}
	return s, e.err
}

// environment reads variables and keeps the first error.
type environment struct {
	lookup     func(string) (string, bool)
	blockBytes int64
	err        error
}

func (e *environment) text(key string) string {
	v, _ := e.lookup(key)
	return v
}

// number reads a whole number from 0 to most, 0 if the variable is not set.
func (e *environment) number(key string, most int) int {
	v := e.text(key)
	if v == "" {
		return 0
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 || n > most {
		e.fail("%s is %q, want a whole number from 0 to %d", key, v, most)
		return 0
	}
	return n
}

// positive reads a number and takes anything that is not positive for unset.
func (e *environment) positive(key string) int {
	n, err := strconv.Atoi(e.text(key))
	if err != nil || n < 0 || n > math.MaxInt32 {
		return 0
	}
	return n
}

// size reads a number of blocks, given as such or in GB.
func (e *environment) size(gb, blocks string) int {
	if e.text(blocks) != "" {
		return e.number(blocks, math.MaxInt32)
	}
	v := e.text(gb)
	if v == "" {
		return 0
	}
	x, err := strconv.ParseFloat(v, 64)
	if err != nil || !(x >= 0) || math.IsInf(x, 0) {
		e.fail("%s is %q, want a number of gigabytes, such as 100 or 0.5", gb, v)
		return 0
	}
	if e.blockBytes <= 0 {
		e.fail("%s is %q, but it is not known how long a block is; use %s", gb, v, blocks)
		return 0
	}
	n := x * 1e9 / float64(e.blockBytes)
	if n > math.MaxInt32 {
		e.fail("%s is %q, which is more than %d blocks of %d bytes", gb, v, math.MaxInt32, e.blockBytes)
		return 0
	}
	if x > 0 && n < 1 {
		e.fail("%s is %q, which is less than one block of %d bytes", gb, v, e.blockBytes)
	}
	return int(n)
}

func (e *environment) fail(format string, args ...any) {
	if e.err == nil {
		e.err = fmt.Errorf(format, args...)
	}
}
