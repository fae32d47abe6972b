package kvcache_test

import (
	"strings"
	"testing"

	"github.com/dynago/dynago/kvcache"
)

func TestParseEnvironment(t *testing.T) {
	const cpu, disk = "DYN_KVBM_CPU_CACHE_GB=", "DYN_KVBM_DISK_CACHE_GB="
	for _, tt := range []struct {
		env     string
		want    kvcache.Settings
		problem string // the variable that the error names
	}{
		{"", kvcache.Settings{}, ""},
		{cpu + "1", kvcache.Settings{Host: 476, DiskFilter: true}, ""},
		{cpu + "0.004", kvcache.Settings{Host: 1, DiskFilter: true}, ""},
		{cpu + "0", kvcache.Settings{}, ""},
		{cpu + "1 DYN_KVBM_CPU_CACHE_OVERRIDE_NUM_BLOCKS=7", kvcache.Settings{Host: 7, DiskFilter: true}, ""},
		{cpu + "1 " + disk + "2 DYN_KVBM_DISK_CACHE_DIR=/kv", kvcache.Settings{Host: 476, Disk: 953, DiskDir: "/kv", DiskFilter: true}, ""},
		{cpu + "1 " + disk + "2 DYN_KVBM_DISABLE_DISK_OFFLOAD_FILTER=", kvcache.Settings{Host: 476, Disk: 953}, ""},
		{disk + "2", kvcache.Settings{Disk: 953}, ""},
		{"DYN_KVBM_MAX_CONCURRENT_TRANSFERS=8 DYN_KVBM_MAX_TRANSFER_BATCH_SIZE=32", kvcache.Settings{Transfers: 8, Batch: 32}, ""},
		{"DYN_KVBM_MAX_CONCURRENT_TRANSFERS=-1 DYN_KVBM_MAX_TRANSFER_BATCH_SIZE=many", kvcache.Settings{}, ""},
		{"DYN_KVBM_HOST_OFFLOAD_PREFIX_MIN_PRIORITY=50", kvcache.Settings{MinPriority: 50}, ""},
		{cpu + "1 DYN_KVBM_OBJECT_ENABLED=1 DYN_KVBM_OBJECT_NUM_BLOCKS=9", kvcache.Settings{Host: 476, Shared: 9, DiskFilter: true}, ""},
		{cpu + "1 DYN_KVBM_OBJECT_ENABLED=0 DYN_KVBM_OBJECT_NUM_BLOCKS=9", kvcache.Settings{Host: 476, DiskFilter: true}, ""},

		{cpu + "much", kvcache.Settings{}, "DYN_KVBM_CPU_CACHE_GB"},
		{cpu + "-1", kvcache.Settings{}, "DYN_KVBM_CPU_CACHE_GB"},
		{cpu + "0.001", kvcache.Settings{}, "DYN_KVBM_CPU_CACHE_GB"},
		{disk + "NaN", kvcache.Settings{}, "DYN_KVBM_DISK_CACHE_GB"},
		{disk + "1e30", kvcache.Settings{}, "DYN_KVBM_DISK_CACHE_GB"},
		{"DYN_KVBM_CPU_CACHE_OVERRIDE_NUM_BLOCKS=1.5", kvcache.Settings{}, "DYN_KVBM_CPU_CACHE_OVERRIDE_NUM_BLOCKS"},
		{"DYN_KVBM_HOST_OFFLOAD_PREFIX_MIN_PRIORITY=101", kvcache.Settings{}, "DYN_KVBM_HOST_OFFLOAD_PREFIX_MIN_PRIORITY"},
		{cpu + "1 DYN_KVBM_OBJECT_ENABLED=1", kvcache.Settings{}, "DYN_KVBM_OBJECT_NUM_BLOCKS"},
		{"DYN_KVBM_OBJECT_ENABLED=1 DYN_KVBM_OBJECT_NUM_BLOCKS=9", kvcache.Settings{}, "DYN_KVBM_CPU_CACHE_GB"},
	} {
		env := map[string]string{}
		for _, pair := range strings.Fields(tt.env) {
			key, value, _ := strings.Cut(pair, "=")
			env[key] = value
		}
		got, err := kvcache.ParseEnvironment(func(key string) (string, bool) { v, ok := env[key]; return v, ok }, 1<<21)
		switch {
		case tt.problem == "" && (err != nil || got != tt.want):
			t.Errorf("%q: %+v, %v, want %+v", tt.env, got, err, tt.want)
		case tt.problem != "" && (err == nil || !strings.Contains(err.Error(), tt.problem)):
			t.Errorf("%q: error %v, want one about %s", tt.env, err, tt.problem)
		}
	}
}
