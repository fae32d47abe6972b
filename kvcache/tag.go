package kvcache

// Tags of one block: two of them lie with it, up to six more apart.
const (
	inlineTags = 2
	maxTags    = 8
)

// tag says that a session has used a block, and how often.
type tag struct {
	session uint32 // its number + 1; 0 = no tag
	count   uint32
}

type tags struct {
	inline [inlineTags]tag
	more   int32 // its number + 1; 0 = none
}

type moreTags [maxTags - inlineTags]tag

// TagCount is a session that a block is tagged with, and how many of its
// requests have stored or found the block.
type TagCount struct {
	Session SessionID
	Count   int
}

// Tags appends the sessions that a block is tagged with. Of a block that has had
// more than eight at a time nothing is known.
func (k *keeper) Tags(dst []TagCount, r Ref) []TagCount {
	k.eachTag(k.original(r), func(t *tag) bool {
		dst = append(dst, TagCount{k.sessions[t.session-1].id, int(t.count)})
		return true
	})
	return dst
}

// Shared reports whether a block has had more sessions than are counted.
func (k *keeper) Shared(r Ref) bool { return k.blocks[k.original(r)].flags&shared != 0 }

func (k *keeper) eachTag(i int32, yield func(*tag) bool) {
	if k.blocks[i].flags&tagged == 0 {
		return
	}
	x := &k.tags[i]
	for j := range x.inline {
		if t := &x.inline[j]; t.session != 0 && !yield(t) {
			return
		}
	}
	if x.more == 0 {
		return
	}
	more := k.moreTags.at(x.more - 1)
	for j := range more {
		if t := &more[j]; t.session != 0 && !yield(t) {
			return
		}
	}
}

// find returns the tag of session n on a block, or nil.
func (k *keeper) find(i int32, n uint32) (found *tag) {
	k.eachTag(i, func(t *tag) bool {
		if t.session == n+1 {
			found = t
		}
		return found == nil
	})
	return found
}

// onlyOf reports whether no session but n has a tag on a block.
func (k *keeper) onlyOf(i int32, n uint32) bool {
	only := k.blocks[i].flags&(foreign|shared) == 0
	k.eachTag(i, func(t *tag) bool {
		only = only && t.session == n+1
		return only
	})
	return only
}

// tag counts a use of a block by session n.
func (k *keeper) tag(i int32, n uint32) {
	b := &k.blocks[i]
	if b.flags&shared != 0 {
		return
	}
	if t := k.find(i, n); t != nil {
		t.count++
		return
	}
	if len(k.tags) < len(k.blocks) {
		k.tags = append(k.tags, make([]tags, len(k.blocks)-len(k.tags))...)
	}
	t := k.vacantTag(&k.tags[i])
	if t == nil {
		k.dropTags(i)
		b.flags |= shared
		k.raise(i)
		return
	}
	*t = tag{n + 1, 1}
	b.flags |= tagged
	s := k.sessions[n]
	s.live++
	s.blocks = append(s.blocks, i)
}

func (k *keeper) vacantTag(x *tags) *tag {
	for j := range x.inline {
		if x.inline[j].session == 0 {
			return &x.inline[j]
		}
	}
	if x.more == 0 {
		x.more = k.moreTags.take() + 1
	}
	more := k.moreTags.at(x.more - 1)
	for j := range more {
		if more[j].session == 0 {
			return &more[j]
		}
	}
	return nil
}

// untag takes the tag of session n from a block, and reports whether there was
// one and it leaves nobody who has used the block.
func (k *keeper) untag(i int32, n uint32) (unused bool) {
	t := k.find(i, n)
	if t == nil {
		return false
	}
	*t = tag{}
	k.sessions[n].live--
	left := false
	k.eachTag(i, func(*tag) bool { left = true; return false })
	if left {
		return false
	}
	k.dropTags(i)
	return k.blocks[i].flags&(foreign|shared) == 0
}

func (k *keeper) dropTags(i int32) {
	b := &k.blocks[i]
	if b.flags&tagged == 0 {
		return
	}
	k.eachTag(i, func(t *tag) bool { k.sessions[t.session-1].live--; return true })
	x := &k.tags[i]
	if x.more != 0 {
		k.moreTags.give(x.more - 1)
	}
	*x = tags{}
	b.flags &^= tagged
}
