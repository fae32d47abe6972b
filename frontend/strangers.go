package frontend

import (
	"slices"
	"strings"
	"sync"
)

// mostStrangers bounds the names that are kept. Clients make them up.
const mostStrangers = 1024

// strangers are the members of nvext that were told of. A client that is newer than
// this server sends the same ones with every request, and they are told of once.
type strangers struct {
	mu   sync.Mutex
	told map[string]bool
}

// sift returns the members that are to be told of: of nvext those that were not yet,
// while there is room for names.
func (s *strangers) sift(members []string) []string {
	if !slices.ContainsFunc(members, extended) {
		return members
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var news []string
	for _, name := range members {
		switch {
		case !extended(name):
		case s.told[name] || len(s.told) >= mostStrangers:
			continue
		default:
			if s.told == nil {
				s.told = map[string]bool{}
			}
			s.told[name] = true
		}
		news = append(news, name)
	}
	return news
}

func extended(member string) bool { return strings.HasPrefix(member, "nvext.") }
