package frontend

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Keys are the API keys of a file: one "key [tenant]" a line, blank lines and
// lines that begin with # left out. The file is read again when it has changed.
type Keys struct {
	path string
	now  func() time.Time

	current atomic.Pointer[keySet]
	mu      sync.Mutex // one reload at a time
	checked atomic.Int64
}

// keySet is one reading of the file. Keys are kept as hashes: looking one up
// takes a time that depends on the hash alone, and no dump of the heap or the
// log can show a key.
type keySet struct {
	tenants map[[sha256.Size]byte]string
	stamp   stamp
}

type stamp struct {
	modified time.Time
	size     int64
}

// recheck is how often the file is looked at.
const recheck = 2 * time.Second

// maxKeysFile bounds a keys file, in bytes.
const maxKeysFile = 16 << 20

// ReadKeys reads a keys file, which must hold at least one key.
func ReadKeys(path string) (*Keys, error) {
	k := &Keys{path: path, now: time.Now}
	if err := k.Reload(); err != nil {
		return nil, err
	}
	return k, nil
}

// Reload reads the file again. If that fails the keys stay as they were.
func (k *Keys) Reload() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.checked.Store(k.now().UnixNano())
	set, err := readKeySet(k.path)
	if err != nil {
		return err
	}
	k.current.Store(set)
	return nil
}

func readKeySet(path string) (*keySet, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("API keys: %w", err)
	}
	if info.Size() > maxKeysFile {
		return nil, fmt.Errorf("API keys: %s has %d bytes, want at most %d", path, info.Size(), maxKeysFile)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("API keys: %w", err)
	}
	set := &keySet{tenants: map[[sha256.Size]byte]string{}, stamp: stamp{info.ModTime(), info.Size()}}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) > 2 {
			return nil, fmt.Errorf("API keys: %s line %d: want \"key [tenant]\", got %d words", path, n, len(fields))
		}
		hash := sha256.Sum256([]byte(fields[0]))
		if _, ok := set.tenants[hash]; ok {
			return nil, fmt.Errorf("API keys: %s line %d: this key stands further up already", path, n)
		}
		tenant := ""
		if len(fields) == 2 {
			tenant = fields[1]
		}
		set.tenants[hash] = tenant
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("API keys: %s: %w", path, err)
	}
	if len(set.tenants) == 0 {
		return nil, fmt.Errorf("API keys: %s holds no key, so nobody could use the server", path)
	}
	return set, nil
}

// tenant returns who owns the key that came with a request.
func (k *Keys) tenant(h http.Header) (tenant string, ok bool) {
	k.refresh()
	key := h.Get("X-Api-Key")
	if key == "" {
		scheme, rest, _ := strings.Cut(h.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return "", false
		}
		key = strings.TrimSpace(rest)
	}
	tenant, ok = k.current.Load().tenants[sha256.Sum256([]byte(key))]
	return tenant, ok
}

// Holds says whether a key is in the file.
func (k *Keys) Holds(key string) bool {
	k.refresh()
	_, ok := k.current.Load().tenants[sha256.Sum256([]byte(key))]
	return ok
}

// refresh looks now and then whether the file has changed.
func (k *Keys) refresh() {
	now, last := k.now().UnixNano(), k.checked.Load()
	if now-last < int64(recheck) || !k.checked.CompareAndSwap(last, now) {
		return
	}
	info, err := os.Stat(k.path)
	if err != nil {
		return // in the middle of being replaced, or gone: the keys stay
	}
	if old := k.current.Load().stamp; info.ModTime().Equal(old.modified) && info.Size() == old.size {
		return
	}
	k.Reload() //nolint:errcheck // a broken file leaves the keys as they were
}
