package pipeline

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/prompt"
)

// Clients say what of a prompt should stay cached, and for how long: in their
// extension object, at blocks of a conversation, or for all of it. Here that becomes
// positions of the prompt and times that are granted, which is what workers, and the
// stores behind them, understand. All of it is advice: nothing here fails a request
// but a place that its conversation does not have.

// Retention says what of it operators grant.
type Retention struct {
	// Off reads what clients say of caching, and heeds nothing of it.
	Off bool
	// MinTTL and MaxTTL bound what is granted; 0 is a second, and a day.
	MinTTL, MaxTTL time.Duration
	// StrictTTL grants from five minutes to an hour instead.
	StrictTTL bool
	// HardPins lets clients keep others from the room that their pins take.
	HardPins bool
	// SubagentEphemeral lets the blocks of sessions that have a parent go first.
	SubagentEphemeral bool
	// HoldSessions pins, between their turns, what sessions have cached that clients
	// have open with an engine, for as long as such a session lasts without a turn, and
	// no longer than is granted.
	HoldSessions bool
	// KeepWarm says for whom prefixes are kept warm on engines that have no pins, and
	// KeepWarmBudget how much of a worker's blocks these may be, from 0 to 1.
	KeepWarm       KeepWarm
	KeepWarmBudget float64
	// KeepWarmEvery is how often is looked whether something has to be warmed; 0 is
	// four times a second.
	KeepWarmEvery time.Duration
}

// Bounds of what is granted, unless operators say otherwise.
const (
	defaultMinTTL, defaultMaxTTL = time.Second, 24 * time.Hour
	strictMinTTL, strictMaxTTL   = 5 * time.Minute, time.Hour
)

// Grant returns for how long something is pinned whose client asks for so long. 0 lets
// go of it, and stays 0.
func (c *Retention) Grant(ttl time.Duration) time.Duration {
	switch {
	case ttl == 0:
		return 0
	case c.StrictTTL:
		return min(max(ttl, strictMinTTL), strictMaxTTL)
	}
	return min(max(ttl, cmp.Or(c.MinTTL, defaultMinTTL)), cmp.Or(c.MaxTTL, defaultMaxTTL))
}

// Who asks for a pin.
const (
	byExtension = "nvext"
	byBlocks    = "blocks"
	byRetention = "prompt_cache_retention"
)

// wishes are what a request asks of the cache, before its prompt is made.
type wishes struct {
	by   string // who asks for pins; "" if nobody does
	pins []wish
	// ranges are as they were said; those that end with a message do so at a place.
	ranges []nvext.RetentionRange
	places []chat.Breakpoint // of the pins that end at one, then of the ranges
}

// wish is a pin that is asked for, and the TTL that is granted.
type wish struct {
	whole bool // to the end of the prompt, else to a place
	ttl   time.Duration
	hard  bool
}

// wishesOf returns what a request asks of the cache of its model's workers. Its turns
// are those that the model sees, which are what is kept of so many that the client has
// sent.
func (p *Pipeline) wishesOf(r *Request, turns int, kept kept) (*wishes, error) {
	w := new(wishes)
	p.pinsOf(w, r)
	if r.Ext == nil || r.Ext.Retention == nil {
		return w, nil
	}
	for i, said := range r.Ext.Retention.Ranges {
		if _, readable := said.Lifetime(); !readable {
			p.Logger.Warn("nvext.retention.ranges: a ttl cannot be read, and counts as the usual one", "request", r.ID, "range", i, "ttl", said.TTL, "usual", nvext.DefaultLifetime)
		}
		k := said.Message
		if k == nil {
			w.ranges = append(w.ranges, said)
			continue
		}
		if r.Chat.Prompt != nil || int(*k) >= turns {
			e := engine.Errorf(engine.InvalidArgument, "nvext.retention.ranges[%d].message: %d is not in a conversation of %d messages", i, *k, turns)
			e.Param = "nvext.retention.ranges"
			return nil, e
		}
		at, ok := kept.behind(r.Chat, int(*k))
		if !ok {
			p.pinned.left.Add(1)
			continue
		}
		w.ranges, w.places = append(w.ranges, said), append(w.places, at)
	}
	return w, nil
}

// pinsOf adds the pins that a request asks for. What the extension says wins over
// marks at blocks, and these over what is said of the whole.
func (p *Pipeline) pinsOf(w *wishes, r *Request) {
	if p.Retention.Off || r.Background {
		return
	}
	grant := func(ttl time.Duration) time.Duration {
		ttl, beyond := r.Caps.TTL(p.Retention.Grant(ttl))
		if beyond {
			r.Notes.cap(nvext.CapTTL)
		}
		return ttl
	}
	switch {
	case r.Ext != nil && r.Ext.CacheControl != nil:
		c := r.Ext.CacheControl
		ttl, readable := c.Lifetime()
		if !readable {
			p.Logger.Warn("nvext.cache_control.ttl cannot be read, and counts as the usual one", "request", r.ID, "ttl", c.TTL, "usual", nvext.DefaultLifetime)
		}
		w.by = byExtension
		w.pins = []wish{{whole: true, ttl: grant(ttl), hard: p.Retention.HardPins && c.Hard != nil && *c.Hard}}
	case len(r.Chat.Cache) > 0:
		w.by = byBlocks
		if !p.marksCount(r.Notes.Model) {
			return
		}
		for _, at := range r.Chat.Cache {
			w.pins = append(w.pins, wish{ttl: grant(at.TTL)})
			w.places = append(w.places, at)
		}
	case r.Chat.KeepCached > 0:
		w.by = byRetention
		w.pins = []wish{{whole: true, ttl: grant(r.Chat.KeepCached)}}
	}
}

// marksCount says whether marks at blocks have any effect on the workers of a model. To
// find where they are in a prompt takes time.
func (p *Pipeline) marksCount(model string) bool {
	return p.Retention.KeepWarm == KeepWarmAll || slices.ContainsFunc(p.Fleet.Snapshot(), func(w *fleet.Worker) bool {
		card := w.Card()
		return card != nil && card.Model == model && card.Features.Has(engine.FeaturePins)
	})
}

// heed puts what a request asks of the cache into its directives, and notes what of it
// was granted.
func (p *Pipeline) heed(r *Request, w *wishes, built *prompt.Prompt) {
	offsets := built.Offsets
	at := func(whole bool) uint32 {
		if whole {
			return uint32(len(built.IDs))
		}
		n := offsets[0]
		offsets = offsets[1:]
		return uint32(n)
	}
	var longest time.Duration
	for _, pin := range w.pins {
		longest = max(longest, pin.ttl)
		r.KV.Pins = addPin(r.KV.Pins, kv.Pin{UpTo: at(pin.whole), TTL: pin.ttl, Hard: pin.hard})
	}
	if w.by != "" {
		p.pinned.asked(w.by)
	}
	if len(w.pins) > 0 {
		r.Notes.Granted = &nvext.Granted{TTL: int64(longest / time.Second)}
		p.Logger.Debug("pins were granted", "request", r.ID, "by", w.by, "ttl", longest, "pins", r.KV.Pins)
	}
	var left int64
	r.KV.Ranges, left = rangesOf(w.ranges, at, r.Caps)
	p.pinned.left.Add(left)
	if r.Ext != nil && r.Ext.Retention != nil && r.Ext.Retention.Decode != nil {
		d := r.Ext.Retention.Decode
		r.KV.DecodePriority, r.KV.DecodeTTL = d.Priority, ttlOf(d, r.Caps)
	}
}

// addPin adds a pin to those that end before it, or with it: of two that end at one
// place the longer one counts. What lets go comes first, so that it does not take what
// the same request asks for.
func addPin(pins []kv.Pin, pin kv.Pin) []kv.Pin {
	if pin.UpTo == 0 {
		return pins
	}
	if i := slices.IndexFunc(pins, func(p kv.Pin) bool { return p.UpTo == pin.UpTo }); i >= 0 {
		pins[i].TTL, pins[i].Hard = max(pins[i].TTL, pin.TTL), pins[i].Hard || pin.Hard
		return pins
	}
	pins = append(pins, pin)
	slices.SortStableFunc(pins, func(a, b kv.Pin) int { return cmp.Compare(min(a.TTL, 1), min(b.TTL, 1)) })
	return pins
}

// rangesOf returns ranges by tokens. One that ends with a message begins where the one
// before it ends; at tells where the next such message ends. What an earlier range has
// is not given again, and some are left that are about nothing.
func rangesOf(ranges []nvext.RetentionRange, at func(whole bool) uint32, caps *nvext.Caps) (out []kv.Range, left int64) {
	end := uint32(0)
	for i := range ranges {
		said := &ranges[i]
		r := kv.Range{Start: max(said.Start, end), End: said.End, Priority: *said.Priority, TTL: ttlOf(said, caps)}
		if said.Message != nil {
			r.End = new(at(false))
		}
		if r.End != nil && *r.End <= r.Start {
			left++
			continue
		}
		out = append(out, r)
		if r.End == nil {
			break
		}
		end = *r.End
	}
	return out, left
}

// neutral is the priority of blocks of which nobody says anything.
const neutral = 35

// ttlOf returns for how long a range keeps its priority. To have blocks stay for ever
// is to have them stay for longer than any cap.
func ttlOf(r *nvext.RetentionRange, caps *nvext.Caps) time.Duration {
	ttl, _ := r.Lifetime()
	if *r.Priority > neutral && caps != nil && caps.MaxTTL != nil && (ttl == 0 || ttl > *caps.MaxTTL) {
		return *caps.MaxTTL
	}
	return ttl
}

// cap notes that a wish was lowered to what its tenant may have.
func (n *Notes) cap(name string) {
	if !slices.Contains(n.Capped, name) {
		n.Capped = append(n.Capped, name)
	}
}

// pinning counts what became of wishes to pin.
type pinning struct {
	nvext, blocks, retention      atomic.Int64 // requests that ask for pins
	full, partial, denied, failed atomic.Int64 // requests whose pins were told of
	left                          atomic.Int64 // ranges of prompts that are about nothing
}

func (c *pinning) asked(by string) {
	switch by {
	case byExtension:
		c.nvext.Add(1)
	case byBlocks:
		c.blocks.Add(1)
	case byRetention:
		c.retention.Add(1)
	}
}
