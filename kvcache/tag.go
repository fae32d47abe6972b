package kvcache

import "slices"

// maxTags is how many sessions are counted of one block.
const maxTags = 8

// tag says which sessions have used a block: 0 for none, the number of one + 1, or
// that of a set with the highest bit on top. Most blocks have one session, whose tag
// lies in four bytes.
//
// A session that ends does not look for its tags. It keeps its number until the last
// of them is gone, and whoever comes upon one drops it.
type tag uint32

// several marks the number of a set.
const several tag = 1 << 31

// tagSet holds the tags of a block with more than one session, in the order in which
// they came; 0 ends it.
type tagSet [maxTags]tag

func (s *tagSet) len() int {
	if n := slices.Index(s[:], 0); n >= 0 {
		return n
	}
	return maxTags
}

// Tags appends the sessions that have stored or found a block. Of one that has had
// more than eight at a time nothing is known.
func (k *keeper) Tags(dst []SessionID, r Ref) []SessionID {
	for _, t := range k.owners(k.original(r)) {
		dst = append(dst, k.sessions[t-1].id)
	}
	return dst
}

// Shared reports whether a block has had more sessions than are counted.
func (k *keeper) Shared(r Ref) bool { return k.blocks[k.original(r)].flags&shared != 0 }

// tagsOf returns the tags of a block, each that of one session, which may have
// ended; they hold until the next change.
func (k *keeper) tagsOf(i int32) []tag {
	switch {
	case k.blocks[i].flags&tagged == 0:
		return nil
	case k.tags[i]&several == 0:
		return k.tags[i : i+1]
	}
	set := k.tagSets.at(int32(k.tags[i] &^ several))
	return set[:set.len()]
}

// owners returns the tags of a block without those of sessions that have ended.
func (k *keeper) owners(i int32) []tag {
	tags := k.tagsOf(i)
	kept := 0
	for _, t := range tags {
		if k.sessions[t-1].ended {
			k.left(t)
			continue
		}
		tags[kept] = t
		kept++
	}
	clear(tags[kept:])
	if kept == 0 && len(tags) > 0 {
		k.untagged(i)
	}
	return tags[:kept]
}

// isOf reports whether session n has a tag on a block.
func (k *keeper) isOf(i int32, n uint32) bool { return slices.Contains(k.tagsOf(i), tag(n+1)) }

// ownedBy reports whether nobody has used a block, or nobody but a session.
func (k *keeper) ownedBy(i int32, id SessionID) bool {
	if k.blocks[i].flags&(foreign|shared) != 0 {
		return false
	}
	t := k.owners(i)
	return len(t) == 0 || len(t) == 1 && k.sessions[t[0]-1].id == id
}

// tag enters session n as one that has used a block.
func (k *keeper) tag(i int32, n uint32) {
	b := &k.blocks[i]
	if b.flags&shared != 0 || k.isOf(i, n) {
		return
	}
	k.makeTags()
	if len(k.owners(i)) == 0 {
		k.tags[i] = tag(n + 1)
		b.flags |= tagged
	} else if !k.addTag(i, tag(n+1)) {
		k.dropTags(i)
		b.flags |= shared
		k.raise(i)
		return
	}
	s := k.sessions[n]
	s.live++
	if !s.options.Ephemeral {
		return
	}
	s.blocks = append(s.blocks, i)
	if len(s.blocks) > 2*s.live+64 {
		s.blocks = k.prune(s.blocks, func(i int32) bool { return k.isOf(i, n) })
	}
}

// makeTags makes room for the tags of all blocks.
func (k *keeper) makeTags() {
	if len(k.tags) < len(k.blocks) {
		k.tags = append(k.tags, make([]tag, len(k.blocks)-len(k.tags))...)
	}
}

// addTag adds to the tags of a block that has some, if there is room.
func (k *keeper) addTag(i int32, t tag) bool {
	if k.tags[i]&several == 0 {
		id := k.tagSets.take()
		*k.tagSets.at(id) = tagSet{k.tags[i], t}
		k.tags[i] = several | tag(id)
		return true
	}
	set := k.tagSets.at(int32(k.tags[i] &^ several))
	n := set.len()
	if n == maxTags {
		return false
	}
	set[n] = t
	return true
}

// untag takes the tag of session n from a block, and reports whether there was
// one and it leaves nobody who has used the block.
func (k *keeper) untag(i int32, n uint32) (unused bool) {
	tags := k.owners(i)
	at := slices.Index(tags, tag(n+1))
	if at < 0 {
		return false
	}
	if len(tags) == 1 {
		k.dropTags(i)
		return k.blocks[i].flags&(foreign|shared) == 0
	}
	k.left(tags[at])
	copy(tags[at:], tags[at+1:])
	tags[len(tags)-1] = 0
	return false
}

func (k *keeper) dropTags(i int32) {
	switch b := &k.blocks[i]; {
	case b.flags&tagged == 0:
	case k.tags[i]&several == 0:
		k.left(k.tags[i])
		b.flags &^= tagged
	default:
		for _, t := range k.tagsOf(i) {
			k.left(t)
		}
		k.untagged(i)
	}
}

// untagged tells that a block has lost its last tag.
func (k *keeper) untagged(i int32) {
	if k.tags[i]&several != 0 {
		k.tagSets.give(int32(k.tags[i] &^ several))
	}
	k.blocks[i].flags &^= tagged
}

// left tells that one of a session's tags is gone.
func (k *keeper) left(t tag) {
	s := k.sessions[t-1]
	if s.live--; s.live == 0 && s.ended {
		k.vacate(uint32(t - 1))
	}
}
