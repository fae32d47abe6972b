package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dynago/dynago/nvext"
)

// tenants returns the caps of all tenants that settings name.
func (s *httpSettings) tenants() (map[string]*nvext.Caps, error) {
	if len(s.Tenants) > 0 && s.APIKeysFile == nil {
		return nil, fmt.Errorf("--tenants: want --api-keys-file besides, which says whose key is whose")
	}
	all := make(map[string]*nvext.Caps, len(s.Tenants))
	for _, text := range s.Tenants {
		name, caps, err := parseTenant(text)
		if err != nil {
			return nil, fmt.Errorf("--tenants: %q: %w", text, err)
		}
		if all[name] != nil {
			return nil, fmt.Errorf("--tenants: %s stands there twice", name)
		}
		all[name] = caps
	}
	return all, nil
}

// parseTenant reads name=NAME and caps, with commas between.
func parseTenant(text string) (string, *nvext.Caps, error) {
	name, caps := "", new(nvext.Caps)
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return "", nil, fmt.Errorf("%q: want KEY=VALUE", part)
		}
		var err error
		switch key = strings.ReplaceAll(key, "-", "_"); key {
		case "name":
			if name = value; name == "" || strings.ContainsAny(name, " \t\"") {
				err = fmt.Errorf("want one word, as in the file of keys")
			}
		case nvext.CapPriority:
			caps.MaxPriority, err = whole[int32](value, math.MinInt32, math.MaxInt32)
		case nvext.CapStrictPriority:
			caps.MaxStrictPriority, err = whole[uint32](value, 0, math.MaxUint32)
		case nvext.CapTTL:
			if ttl, e := time.ParseDuration(value); e != nil || ttl < 0 {
				err = fmt.Errorf("want a duration such as 30m")
			} else {
				caps.MaxTTL = &ttl
			}
		case nvext.CapPinShare:
			if share, e := strconv.ParseFloat(value, 64); e != nil || !(share >= 0 && share <= 1) {
				err = fmt.Errorf("want a share from 0 to 1")
			} else {
				caps.PinShare = &share
			}
		default:
			return "", nil, fmt.Errorf("there is no cap %q: want %s, %s, %s or %s", key, nvext.CapPriority, nvext.CapStrictPriority, nvext.CapTTL, nvext.CapPinShare)
		}
		if err != nil {
			return "", nil, fmt.Errorf("%s: %q: %w", key, value, err)
		}
	}
	if name == "" {
		return "", nil, fmt.Errorf("want name=NAME")
	}
	return name, caps, nil
}

// whole reads a whole number that has bounds.
func whole[T int32 | uint32](text string, low, high int64) (*T, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low || n > high {
		return nil, fmt.Errorf("want a whole number from %d to %d", low, high)
	}
	return new(T(n)), nil
}
