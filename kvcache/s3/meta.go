package s3

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dynago/dynago/kvcache/store"
)

const (
	metaSuffix = ".meta"
	lockSuffix = ".lock"
)

// Names of the metadata of `.meta` objects, and of those with bytes; on the wire
// they begin with x-amz-meta-.
const (
	sizeName = "kv-size"
	sumName  = "kv-xxh3"
	tagName  = "kv-ret" // v1;<base64>
)

// meta is what is known of a value.
type meta struct {
	size   int64
	sum    uint64
	tag    []byte
	stored time.Time
	etag   string
}

func (m meta) entry(key string) store.Entry {
	return store.Entry{Key: key, Size: m.size, Tag: m.tag, Stored: m.stored}
}

// same reports whether m and o describe one value.
func (m meta) same(o meta) bool {
	return m.size == o.size && m.sum == o.sum && m.stored.Equal(o.stored)
}

// write returns m as metadata of an object.
func (m meta) write() map[string]string {
	return map[string]string{
		sizeName: strconv.FormatInt(m.size, 10),
		sumName:  fmt.Sprintf("%016x", m.sum),
		tagName:  "v1;" + base64.StdEncoding.EncodeToString(m.tag),
	}
}

// readMeta returns what a `.meta` object says. One that does not say what it
// must, be it that others wrote it, is none; a tag that cannot be read is lost,
// and the value is not.
func readMeta(o object) (meta, error) {
	size, err := strconv.ParseInt(o.user[sizeName], 10, 64)
	if err != nil || size < 0 {
		return meta{}, errNoObject
	}
	sum, err := strconv.ParseUint(o.user[sumName], 16, 64)
	if err != nil {
		return meta{}, errNoObject
	}
	m := meta{size: size, sum: sum, stored: o.stored, etag: o.etag}
	if text, ok := strings.CutPrefix(o.user[tagName], "v1;"); ok {
		if tag, err := base64.StdEncoding.DecodeString(text); err == nil && len(tag) <= store.MaxTag {
			m.tag = tag
		}
	}
	if len(m.tag) == 0 {
		m.tag = nil
	}
	return m, nil
}

// lease is what a lock says: who writes, since when, and until when nobody else
// does.
type lease struct {
	Instance string    `json:"instance_id"`
	Acquired time.Time `json:"acquired_at"`
	Deadline time.Time `json:"deadline"`
}

// readLease reads a lock. ok is false if it makes no sense, and so binds nobody.
func readLease(b []byte) (l lease, ok bool) {
	if err := json.Unmarshal(b, &l); err != nil {
		return lease{}, false
	}
	return l, l.Instance != "" && !l.Deadline.IsZero()
}
