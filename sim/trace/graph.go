package trace

import (
	"fmt"
	"strings"
)

// Check returns an error that names the first request whose id is not its own,
// or that waits for one which is not there or for itself, be it by way of
// others.
func Check(w []Request) error {
	at := make(map[string]int, len(w))
	for i := range w {
		if _, twice := at[w[i].ID]; twice {
			return fmt.Errorf("request %q is there twice", w[i].ID)
		}
		at[w[i].ID] = i
	}
	for i := range w {
		for _, id := range w[i].After {
			if _, ok := at[id]; !ok {
				return fmt.Errorf("request %q waits for %q, which is not there", w[i].ID, id)
			}
		}
	}
	return checkCycles(w, at)
}

// checkCycles walks from each request along what it waits for. What the walk has
// left is good; what it meets again before that waits for itself.
func checkCycles(w []Request, at map[string]int) error {
	const (
		unseen = iota
		open
		done
	)
	state := make([]uint8, len(w))
	type step struct{ request, next int }
	var path []step
	for i := range w {
		if state[i] != unseen {
			continue
		}
		state[i] = open
		path = append(path[:0], step{request: i})
		for len(path) > 0 {
			top := &path[len(path)-1]
			after := w[top.request].After
			if top.next == len(after) {
				state[top.request] = done
				path = path[:len(path)-1]
				continue
			}
			j := at[after[top.next]]
			top.next++
			switch state[j] {
			case open:
				var circle []string
				for k := len(path) - 1; k >= 0; k-- {
					circle = append(circle, w[path[k].request].ID)
					if path[k].request == j {
						break
					}
				}
				return fmt.Errorf("requests wait for each other in a circle: %s", strings.Join(circle, ", "))
			case unseen:
				state[j] = open
				path = append(path, step{request: j})
			}
		}
	}
	return nil
}
