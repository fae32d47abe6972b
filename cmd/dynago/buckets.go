package main

import (
	"fmt"
	"strconv"

	"github.com/dynago/dynago/frontend"
)

// bucketsFromEnv reads the bounds of histograms that the environment changes.
// The variables have three spellings, of which the first one wins.
func bucketsFromEnv(lookup func(string) (string, bool)) (map[string]frontend.Buckets, error) {
	changed := map[string]frontend.Buckets{}
	for name, b := range frontend.BucketNames() {
		found := false
		for part, set := range map[string]func(string) error{
			"MIN":   func(s string) (err error) { b.Min, err = strconv.ParseFloat(s, 64); return err },
			"MAX":   func(s string) (err error) { b.Max, err = strconv.ParseFloat(s, 64); return err },
			"COUNT": func(s string) (err error) { b.Count, err = strconv.Atoi(s); return err },
		} {
			for _, prefix := range [...]string{"DYN_METRICS_", "DYN_HISTOGRAM_DYN_METRICS_", "DYN_HISTOGRAM_"} {
				key := prefix + name + "_" + part
				text, ok := lookup(key)
				if !ok || text == "" {
					continue
				}
				if err := set(text); err != nil {
					return nil, fmt.Errorf("%s: %q: want a number", key, text)
				}
				found = true
				break
			}
		}
		if !found {
			continue
		}
		if err := b.Validate(); err != nil {
			return nil, fmt.Errorf("DYN_METRICS_%s_{MIN,MAX,COUNT}: %w", name, err)
		}
		changed[name] = b
	}
	return changed, nil
}
