package tree

import (
	"slices"

	"github.com/dynago/dynago/trace"
)

// Kin says which chains belong together, without a word about their turns: a first look
// at a trace of which only a part is wanted. Its zero value is ready.
type Kin struct {
	children map[string][]string
	parent   map[string]string
	runs     map[string][]string // chains that the client has said are part of a run
	known    map[string]bool
	order    []string // of known
}

// Add takes a record, of which it keeps the names of its chain.
func (k *Kin) Add(r *trace.Record) {
	if r.Agent == nil {
		return
	}
	id, parent, run := r.Agent.Chain(), r.Agent.ParentChain(), r.Agent.Run()
	if k.known == nil {
		*k = Kin{map[string][]string{}, map[string]string{}, map[string][]string{}, map[string]bool{}, nil}
	}
	if !k.known[id] {
		k.known[id] = true
		k.order = append(k.order, id)
		if run != "" {
			k.runs[run] = append(k.runs[run], id)
		}
	}
	if parent != "" && parent != id && k.parent[id] == "" {
		k.parent[id] = parent
		k.children[parent] = append(k.children[parent], id)
	}
}

// Of returns the chain of a name, or all chains of the run of that name, and every
// chain below them; nothing if there is none.
func (k *Kin) Of(name string) map[string]bool {
	roots := k.runs[name]
	if k.known[name] || len(k.children[name]) > 0 {
		roots = append(roots[:len(roots):len(roots)], name)
	}
	return k.below(roots)
}

// below returns chains and all that come from them.
func (k *Kin) below(roots []string) map[string]bool {
	all := map[string]bool{}
	open := slices.Clone(roots)
	for len(open) > 0 {
		id := open[len(open)-1]
		open = open[:len(open)-1]
		if !all[id] {
			all[id] = true
			open = append(open, k.children[id]...)
		}
	}
	return all
}

// Roots returns the first n sessions that records tell of, which are chains that no
// other has opened, with every chain below them, and how many sessions there are more.
func (k *Kin) Roots(n int) (chains map[string]bool, more int) {
	tops, seen := map[string]string{}, map[string]bool{}
	var roots []string
	for _, id := range k.order {
		if top := k.top(id, tops); !seen[top] {
			seen[top] = true
			roots = append(roots, top)
		}
	}
	shown := min(n, len(roots))
	return k.below(roots[:shown]), len(roots) - shown
}

// top returns the chain from which another comes, or one of those that come from each
// other. Known has those that were found before.
func (k *Kin) top(id string, known map[string]string) string {
	var path []string
	at, on := id, map[string]bool{}
	for {
		if top, ok := known[at]; ok {
			at = top
			break
		}
		if on[at] {
			break
		}
		on[at] = true
		path = append(path, at)
		parent := k.parent[at]
		if parent == "" {
			break
		}
		at = parent
	}
	for _, id := range path {
		known[id] = at
	}
	return at
}
