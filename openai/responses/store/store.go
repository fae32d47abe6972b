// Package store keeps responses, so that a later request can go on from one or
// refer to an item of it, and so that clients can ask for it again. It is bounded
// by bytes and by time, and a record belongs to the tenant who made it: to others
// it does not exist.
//
// The one idea: stored responses form trees. A record holds what its request has
// added to the conversation and what came of it, and stands on the record that it
// continues; so a conversation of a thousand turns is stored once, and what a
// record stands on stays as long as it does, even when it can no longer be asked
// for itself. The tree is plain data with the time as an argument; [Store] puts
// a lock and a clock around it, and a directory under it if one is wanted.
package store

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/dynago/dynago/openai/responses"
)

// Options are the bounds of a store.
type Options struct {
	// Bytes bounds what is kept, in bytes; 0 is [DefaultBytes].
	Bytes int64
	// TTL is how long a response is kept; 0 is [DefaultTTL].
	TTL time.Duration
	// Dir is where records are kept as files, which other processes may share;
	// empty keeps them in memory.
	Dir string
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Logger hears of files that cannot be read or written; nil is nobody.
	Logger *slog.Logger
}

// Defaults of [Options].
const (
	DefaultBytes = 1 << 30
	DefaultTTL   = time.Hour
)

// Stats tells what a store holds and what it did.
type Stats struct {
	// Entries and Bytes are what is kept now.
	Entries, Bytes int64
	// Hits and Misses count what was asked for: responses and items.
	Hits, Misses int64
	// Evicted counts records that made room for others, Expired those that were
	// kept long enough, Refused those too large for the store.
	Evicted, Expired, Refused int64
	// Torn counts files that are no whole records, Failed those that could not be
	// written.
	Torn, Failed int64
}

// Store keeps responses. Its methods may be called from any goroutine.
type Store struct {
	ttl    time.Duration
	now    func() time.Time
	logger *slog.Logger
	dir    *directory // nil in memory

	mu    sync.Mutex
	tree  *tree
	files map[string]*node // by id; nil in memory
	cache cache
	// making are the ids of responses that are being made here, and are in the
	// directory for others to see.
	making map[string]bool
	stats  Stats
	// left are the nodes of which files have to go, told by the tree.
	left []leaving
}

// leaving is a record that can no longer be asked for, and perhaps a node that
// is gone.
type leaving struct {
	id   string
	gone bool
}

// New makes a store. With a directory it finds what is there.
func New(o Options) (*Store, error) {
	s := &Store{ttl: o.TTL, now: o.Now, logger: o.Logger}
	if o.Bytes == 0 {
		o.Bytes = DefaultBytes
	}
	if s.ttl == 0 {
		s.ttl = DefaultTTL
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	s.tree = newTree(o.Bytes)
	if o.Dir == "" {
		s.tree.dropped = func(n *node, gone bool) {
			if !gone {
				n.record = n.record.remains()
			}
		}
		return s, nil
	}
	s.files, s.making = map[string]*node{}, map[string]bool{}
	s.cache.limit = min(cacheBytes, o.Bytes)
	s.tree.dropped = func(n *node, gone bool) {
		s.left = append(s.left, leaving{n.id, gone})
		if gone {
			delete(s.files, n.id)
		}
	}
	var err error
	if s.dir, err = openDirectory(o.Dir); err != nil {
		return nil, err
	}
	return s, s.rescan(true)
}

// TTL returns how long a response is kept.
func (s *Store) TTL() time.Duration { return s.ttl }

// Run drops what has expired, and looks at what others do in the directory, until
// ctx is done.
func (s *Store) Run(ctx context.Context) {
	tick := time.NewTicker(min(time.Minute, max(time.Second, s.ttl/4)))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.Sweep()
		}
	}
}

// Sweep does once what [Store.Run] does again and again.
func (s *Store) Sweep() {
	if s.dir != nil {
		if err := s.rescan(true); err != nil {
			s.logger.Warn("responses store", "error", err)
		}
	}
	s.locked(func(now time.Time) {
		s.tree.expire(now)
		for id := range s.making {
			if n := s.files[id]; n != nil && n.live {
				s.dir.touch(n, now)
			}
		}
	})
}

// Shared says whether others can see what is kept: then a response that is being
// made should be, too.
func (s *Store) Shared() bool { return s.dir != nil }

// locked does something to the tree, and then removes files of what has left it.
func (s *Store) locked(f func(now time.Time)) {
	s.mu.Lock()
	f(s.now())
	left := s.left
	s.left = nil
	s.mu.Unlock()
	if s.dir != nil {
		s.dir.leave(left)
	}
}

// Put keeps a record, in place of one with the same id that no other continues.
// before is the
// conversation before its input, which is kept with it should the record that it
// continues be gone meanwhile. A record that continues none, but whose input
// begins with all of a conversation that is kept, stands on that. It returns
// false if the record cannot be kept, because it is too large or there is no room
// on the disk.
func (s *Store) Put(r *Record, before []Item) bool {
	key := name{r.Tenant, r.ID}
	kept := *r
	var now time.Time
	var parent *node
	stands, free := "", true
	s.locked(func(at time.Time) {
		now = at
		old := s.tree.nodes[key]
		if free = old == nil || old.live && old.children == 0; !free {
			return
		}
		kept.Expires = now.Add(s.ttl)
		if r.Previous != "" {
			if parent = s.tree.nodes[name{r.Tenant, r.Previous}]; parent == nil {
				kept.Input = append(Clone(before), kept.Input...)
			}
		}
		if parent == nil {
			var count int
			if parent, count = s.tree.told(r.Tenant, kept.Input); parent == old {
				parent, count = nil, 0
			}
			kept.Input = kept.Input[count:]
		}
		if parent != nil {
			// It has to stay while the record is written.
			parent.children++
			stands = parent.id
		}
		if s.dir != nil && !r.Finished() {
			s.making[r.ID] = true
		} else {
			delete(s.making, r.ID)
		}
	})
	if !free {
		return false
	}
	var conversation sum
	if parent != nil {
		conversation = parent.sum
	}
	conversation = conversation.withAll(kept.Input).withAll(kept.Output)
	total, extra := kept.size()
	var err error
	if s.dir != nil {
		total, err = s.dir.write(now, &kept, stands, conversation)
		extra = 0 // a file stays as large as it is
	}
	ok := false
	s.locked(func(now time.Time) {
		if err == nil && s.drop(s.tree.nodes[key]) {
			n := newNode(key, total, extra, kept.ids(), now, kept.Expires)
			n.sum, n.unfinished = conversation, !kept.Finished()
			if s.dir == nil {
				n.record = &kept
			} else {
				s.files[r.ID] = n
				s.cache.add(n, &kept)
			}
			ok = s.tree.add(now, n, parent)
		}
		if parent != nil {
			parent.children--
			s.tree.prune(parent)
		}
		switch {
		case err != nil:
			s.stats.Failed++
		case !ok:
			s.stats.Refused++
			if n := s.files[r.ID]; n != nil && !n.live && n.children == 0 {
				delete(s.files, r.ID)
				s.left = append(s.left, leaving{r.ID, true})
			}
		}
	})
	if err != nil {
		s.logger.Warn("responses store: a response is not kept", "response_id", r.ID, "error", err)
	}
	return ok
}

// Get returns a record.
func (s *Store) Get(tenant, id string) (*Record, bool) {
	line := s.find(tenant, id)
	if line == nil {
		return nil, s.count(false)
	}
	r, err := s.load(line[len(line)-1])
	if err == nil && !r.Finished() && s.silent(id) {
		lost := *r
		lost.Lost = true
		r = &lost
	}
	return r, s.count(err == nil)
}

// silent says whether a response that is not finished will never be.
func (s *Store) silent(id string) bool {
	s.mu.Lock()
	ours, now := s.making[id], s.now()
	s.mu.Unlock()
	return !ours && s.dir != nil && s.dir.silent(id, now)
}

// Conversation returns a record and everything that was said before its output,
// the oldest item first.
func (s *Store) Conversation(tenant, id string) (r *Record, before []Item, ok bool) {
	line := s.find(tenant, id)
	for i, at := range line {
		var err error
		if r, err = s.load(at); err != nil || at.node.orphan {
			return nil, nil, s.count(false)
		}
		before = append(before, r.Input...)
		if i < len(line)-1 {
			before = append(before, r.Output...)
		}
	}
	return r, before, s.count(line != nil)
}

// Item returns the newest item of an id.
func (s *Store) Item(tenant, id string) (Item, bool) {
	key := name{tenant, id}
	at, index := s.place(key)
	if at.node == nil && s.dir != nil {
		// Another process may have written it. Items of answers say where they are.
		if response, ok := responses.ResponseOf(id); !ok || !s.adopt(response) {
			s.rescan(false) //nolint:errcheck // then it is not there
		}
		at, index = s.place(key)
	}
	if at.node == nil {
		return Item{}, s.count(false)
	}
	r, err := s.load(at)
	if err != nil {
		return Item{}, s.count(false)
	}
	return r.at(index), s.count(true)
}

func (s *Store) place(key name) (at found, index int) {
	s.locked(func(now time.Time) {
		if p := s.tree.item(now, key); p != nil {
			at, index = found{p.node, p.node.record}, p.index
		}
	})
	return at, index
}

// Delete forgets a record, and says whether there was one.
func (s *Store) Delete(tenant, id string) (ok bool) {
	if s.find(tenant, id) == nil {
		return s.count(false)
	}
	s.locked(func(now time.Time) { ok = s.tree.remove(now, name{tenant, id}) })
	return s.count(ok)
}

// found is a node, and its record as it was when it was found, if that is in
// memory.
type found struct {
	node   *node
	record *Record
}

// find returns a record that can be asked for and what it stands on, the oldest
// first, or nil.
func (s *Store) find(tenant, id string) (line []found) {
	get := func(now time.Time) {
		n := s.tree.get(now, name{tenant, id})
		if n == nil {
			return
		}
		for _, at := range lineage(n) {
			line = append(line, found{at, at.record})
		}
		if s.dir != nil && !n.unfinished { // its maker alone shows that it is there
			s.dir.touch(n, now)
		}
	}
	if s.dir != nil {
		s.grown(id)
	}
	s.locked(get)
	if line == nil && s.dir != nil && s.adopt(id) {
		s.locked(get)
	}
	return line
}

// load returns the record of a node. A file that is lost or torn takes its record
// with it.
func (s *Store) load(at found) (*Record, error) {
	if at.record != nil {
		return at.record, nil
	}
	r, err := s.dir.read(at.node.id)
	if err == nil {
		s.mu.Lock()
		s.cache.add(at.node, r)
		s.mu.Unlock()
	} else {
		s.logger.Warn("responses store: a response is lost", "response_id", at.node.id, "error", err)
		s.locked(func(time.Time) {
			if at.node.live {
				s.tree.retire(at.node)
			}
		})
	}
	return r, err
}

func (s *Store) count(hit bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if hit {
		s.stats.Hits++
	} else {
		s.stats.Misses++
	}
	return hit
}

// Stats returns what the store holds and what it did.
func (s *Store) Stats() (stats Stats) {
	s.locked(func(now time.Time) {
		s.tree.expire(now)
		stats = s.stats
		stats.Entries, stats.Bytes = int64(s.tree.live), s.tree.bytes
		stats.Evicted, stats.Expired = s.tree.evicted, s.tree.expired
	})
	return stats
}
