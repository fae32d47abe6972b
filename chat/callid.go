package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"math/big"
	"strconv"
	"strings"
)

// IDStyle is the form in which the models of a family read and write the ids of
// calls. A client knows a call by another id, which carries the model's own one
// in its end, so that what the client sends back needs no table to be read:
// [IDStyle.Wire] goes there, and [NativeIDs] back.
type IDStyle uint8

// Styles.
const (
	NoIDs       IDStyle = iota // ids are never shown to the model
	FunctionIDs                // functions.NAME:INDEX, the index counting over the conversation (Kimi K2)
	NameIDs                    // NAME:INDEX, likewise (Kimi K3)
	NineIDs                    // nine characters of [0-9A-Za-z] (Mistral)
)

// nine is the length of an id of [NineIDs], and random that of the part of a wire
// id which makes it unlike all others.
const (
	nine   = 9
	random = 12
)

// Wire returns the id by which a client knows a call of this name that the model
// knows as native. It is made of fresh, an id that was never used: a prefix,
// "call_" or "toolu_", and at least 12 characters of [0-9A-Za-z]. Without a
// native id it is fresh itself.
func (s IDStyle) Wire(fresh, native, name string) string {
	switch {
	case s == NoIDs || native == "":
		return fresh
	case s == NineIDs && isNine(native):
		return native
	}
	prefix := fresh[:min(len(fresh), strings.IndexByte(fresh, '_')+1+random)]
	if index, ok := strings.CutPrefix(native, "functions."+name+":"); ok && isNumber(index) {
		return prefix + "k" + index
	}
	if index, ok := strings.CutPrefix(native, name+":"); ok && isNumber(index) {
		return prefix + "b" + index
	}
	return prefix + "h" + hex.EncodeToString([]byte(native))
}

// Native returns the id by which the model knows a call of this name, of which
// the client says id: the one that [IDStyle.Wire] was given if the id is of its
// making; the id itself if it is native, as other servers hand them out; and for
// any other an id that depends on nothing but the arguments. The ordinal is the
// number of calls before it in the conversation.
//
// Clients rewrite ids, and so "_" may stand for "." and ":", and a prefix or a
// separator may be missing.
func (s IDStyle) Native(id, name string, ordinal int) string {
	if s == NoIDs {
		return ""
	}
	if native, ok := unwire(id, name); ok {
		id = native
	}
	if s == NineIDs {
		if isNine(id) {
			return id
		}
		return hashed(id)
	}
	if s.writes(id, name) {
		return id
	}
	if index, ok := IndexInID(id, name); ok && index >= 0 {
		ordinal = index
	}
	return s.indexed(name, ordinal)
}

// writes says whether a model writes this id for a call of this name. It may
// forget the prefix, or write something else than a number where nothing else
// reads it.
func (s IDStyle) writes(id, name string) bool {
	if s == FunctionIDs {
		wrote, _, ok := SplitID(id)
		return ok && wrote == name
	}
	return id == name || strings.HasPrefix(id, name+":")
}

// indexed returns the id of the call of this name with this index.
func (s IDStyle) indexed(name string, index int) string {
	id := name + ":" + strconv.Itoa(index)
	if s == FunctionIDs {
		return "functions." + id
	}
	return id
}

// SplitID takes an id of the form functions.NAME:INDEX or NAME:INDEX apart.
func SplitID(id string) (name string, index int, ok bool) {
	i := strings.LastIndexByte(id, ':')
	if i < 0 || !isNumber(id[i+1:]) {
		return "", 0, false
	}
	name = strings.TrimPrefix(id[:i], "functions.")
	index, err := strconv.Atoi(id[i+1:])
	return name, index, err == nil && name != ""
}

// IndexInID says whether an id is one of a call of this name, however it is
// spelled: "_" and "-" may stand for "." and ":", and the prefix, a separator and
// the index may be missing. The index is -1 if it is.
func IndexInID(id, name string) (index int, ok bool) {
	const separators = ":._-"
	if rest, ok := strings.CutPrefix(id, "functions"); ok {
		id = strings.TrimLeft(rest, separators)
	}
	if len(id) < len(name) || foldID(id[:len(name)]) != foldID(name) {
		return 0, false
	}
	rest := strings.TrimLeft(id[len(name):], separators)
	if rest == "" {
		return -1, true
	}
	index, err := strconv.Atoi(rest)
	return index, err == nil && isNumber(rest)
}

// foldID makes the spellings of an id alike.
func foldID(id string) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || r == ':' || r == '-' {
			return '_'
		}
		return r
	}, id)
}

// unwire returns the native id in an id that [IDStyle.Wire] made.
func unwire(id, name string) (native string, ok bool) {
	rest, ok := strings.CutPrefix(id, "call_")
	if !ok {
		rest, ok = strings.CutPrefix(id, "toolu_")
	}
	if !ok || len(rest) < random+2 || !isAlnums(rest[:random]) {
		return "", false
	}
	kind, rest := rest[random], rest[random+1:]
	switch {
	case kind == 'k' && isNumber(rest):
		return "functions." + name + ":" + rest, true
	case kind == 'b' && isNumber(rest):
		return name + ":" + rest, true
	case kind == 'h':
		b, err := hex.DecodeString(rest)
		return string(b), err == nil
	}
	return "", false
}

// hashed returns the first nine base62 digits of the SHA-256 of an id.
func hashed(id string) string {
	sum := sha256.Sum256([]byte(id))
	return new(big.Int).SetBytes(sum[:]).Text(62)[:nine]
}

func isNine(id string) bool { return len(id) == nine && isAlnums(id) }

func isAlnums(s string) bool {
	for i := range len(s) {
		if !isAlnum(s[i]) {
			return false
		}
	}
	return true
}

func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

func isNumber(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// NativeIDs names the calls of one conversation, in their order, as the model
// knows them. It depends on nothing but the calls before, so that a conversation
// that grows keeps its names. It is for one goroutine at a time.
type NativeIDs struct {
	style IDStyle
	calls int
	taken map[string]bool   // native ids
	index map[int]bool      // indices in them
	free  map[int]int       // by an index that is taken, the first one behind it that was not
	wire  map[string]string // the native id of the newest call with an id
}

// NewNativeIDs returns the names of a conversation without calls.
func NewNativeIDs(s IDStyle) *NativeIDs {
	return &NativeIDs{style: s, taken: map[string]bool{}, index: map[int]bool{}, free: map[int]int{}, wire: map[string]string{}}
}

// Call names the next call of the history. An id that an earlier call has is
// changed.
func (n *NativeIDs) Call(use *ToolUse) string {
	if n.style == NoIDs {
		return ""
	}
	native := use.NativeID
	if native == "" {
		native = n.style.Native(use.ID, use.Name, n.calls)
	}
	if n.taken[native] {
		native = n.next(native, use.Name, use.ID)
	}
	n.take(native)
	n.wire[use.ID] = native
	return native
}

// Result names the call that a result answers: the newest one of that id. A call
// that is not in the history is named by its id and the name of its tool alone.
func (n *NativeIDs) Result(r *Result) string {
	if native, ok := n.wire[r.ID]; ok {
		return native
	}
	return n.style.Native(r.ID, r.Name, n.calls)
}

// New names a call that the model just made and gave the id native, or none; the
// id is changed if one like it, or its index, was used before. Fresh is an id as
// [IDStyle.Wire] takes it.
func (n *NativeIDs) New(native, name, fresh string) string {
	if n.style == NoIDs {
		return ""
	}
	if native == "" || n.style == NineIDs && !isNine(native) {
		native = fresh
	}
	native = n.style.Native(native, name, n.calls)
	if _, index, ok := SplitID(native); n.taken[native] || ok && n.index[index] {
		native = n.next(native, name, fresh)
	}
	n.take(native)
	return native
}

// next returns an id instead of one that is taken.
func (n *NativeIDs) next(native, name, salt string) string {
	if n.style == NineIDs {
		for n.taken[native] {
			native = hashed(native + salt)
		}
		return native
	}
	_, taken, _ := SplitID(native)
	index := max(taken, n.free[taken])
	for n.index[index] || n.taken[n.style.indexed(name, index)] {
		index++
	}
	n.free[taken] = index
	return n.style.indexed(name, index)
}

func (n *NativeIDs) take(native string) {
	n.calls++
	n.taken[native] = true
	if _, index, ok := SplitID(native); ok {
		n.index[index] = true
	}
}
