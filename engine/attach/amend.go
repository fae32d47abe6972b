package attach

import (
	"slices"

	"github.com/dynago/dynago/engine"
)

// amend puts what an operator says of a server over what it tells.
func (s *Spec) amend(card *engine.Card) {
	for _, name := range s.Aliases {
		if name != card.Model && !slices.Contains(card.Aliases, name) {
			card.Aliases = append(slices.Clip(card.Aliases), name)
		}
	}
	if len(s.given["role"]) > 0 {
		card.Role = s.Role
	}
	if s.TotalBlocks > 0 {
		card.TotalBlocks = s.TotalBlocks
	}
	if s.OwnRanks {
		card.Features = without(card.Features, engine.FeatureDPRank)
	}
	if s.Events == none {
		card.Features = without(card.Features, engine.FeatureEvents)
	}
}

func without(list engine.Features, f engine.Feature) engine.Features {
	return slices.DeleteFunc(slices.Clone(list), func(g engine.Feature) bool { return g == f })
}
