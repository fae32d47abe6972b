package pipeline

import (
	"slices"
	"strings"

	"github.com/dynago/dynago/chat"
)

// withoutDeferred returns the tools of a request that its model is to see: without
// the deferred ones, until a result refers to them. Those come last then, in the
// order in which they were found, so that each find leaves the tools before it
// where they are; one that has to be called is found by that. A client that has
// deferred tools and nothing to search them with means all of them.
func withoutDeferred(r *chat.Request) []chat.Tool {
	deferred := func(t chat.Tool) bool { return t.Deferred }
	if !slices.ContainsFunc(r.Tools, deferred) || !slices.ContainsFunc(r.Tools, searchesTools) {
		return r.Tools
	}
	tools := slices.DeleteFunc(slices.Clone(r.Tools), deferred)
	found := map[int]bool{}
	find := func(blocks []chat.Block) {
		for i := range blocks {
			if blocks[i].Kind != chat.ToolReference {
				continue
			}
			for k := range r.Tools {
				if t := &r.Tools[k]; t.Deferred && !found[k] && t.Name == blocks[i].Text {
					found[k] = true
					tools = append(tools, *t)
				}
			}
		}
	}
	for i := range r.Turns {
		for j := range r.Turns[i].Blocks {
			find(r.Turns[i].Blocks[j : j+1])
			if result := r.Turns[i].Blocks[j].Result; result != nil {
				find(result.Blocks)
			}
		}
	}
	if r.ToolChoice.Mode == chat.ToolNamed {
		for _, name := range r.ToolChoice.Names {
			_, own, grouped := strings.Cut(name, separator)
			find([]chat.Block{{Kind: chat.ToolReference, Text: name}})
			if grouped {
				find([]chat.Block{{Kind: chat.ToolReference, Text: own}})
			}
		}
	}
	return tools
}

// searchesTools tells that a tool is for finding others: that of the Messages API,
// under any of its names, or one that an agent runs itself.
func searchesTools(t chat.Tool) bool {
	name := strings.ReplaceAll(strings.ToLower(t.Name), "_", "")
	return !t.Deferred && strings.HasPrefix(name, "toolsearch")
}
