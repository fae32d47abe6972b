package main

import (
	"log/slog"
	"slices"

	"github.com/dynago/dynago/internal/config"
)

// warnUnheeded warns of settings that are given and mean nothing to what runs. Why says of
// one why that is so, or "".
func warnUnheeded(parsed *config.Parsed, log *slog.Logger, why func(config.Setting) string) {
	for _, s := range parsed.Settings() {
		if s.Source == "default" {
			continue
		}
		if reason := why(s); reason != "" {
			log.Warn("setting has no effect: "+reason, "setting", "--"+s.Name, "value", s.Value)
		}
	}
}

// Groups of settings of the engines of this process.
const (
	insideGroup = "Workers (in this process)"
	bytesGroup  = "KV blocks of workers that compute"
)

// forAll are settings of engines of this process that requests to all others heed too.
var forAll = []string{"allow-hard-pins", "subagent-ephemeral"}

// unheeded warns of what is said of engines of this process where others are attached, and
// of blocks that engines which imitate do not have. What those which compute do not heed
// they refuse.
func (s *settings) unheeded(parsed *config.Parsed, log *slog.Logger) {
	attached := len(s.Attach.Engines) > 0 || s.source() != nil
	warnUnheeded(parsed, log, func(set config.Setting) string {
		switch {
		case attached && (set.Group == insideGroup || set.Group == bytesGroup) && !slices.Contains(forAll, set.Name):
			return "it is for engines of this process, and others are attached"
		case s.Model.Demo == demoMock && set.Group == bytesGroup && set.Source != "DYN_KVBM_OBJECT_ENABLED": // by which they have a store
			return "engines that imitate have blocks without bytes: want --demo tiny with it"
		}
		return ""
	})
}
