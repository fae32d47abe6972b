package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/dynago/dynago/kv"
)

// keyed is the way of naming blocks in the books that needs a key.
const keyed = "keyed-xxh3-v1"

// trackingKey reads the key by which blocks in use are named, or returns nil if
// they are named in public.
func (s *routerSettings) trackingKey() (*kv.TrackingKey, error) {
	if s.TrackingHash != keyed {
		switch {
		case s.TrackingKeyFile != "":
			return nil, fmt.Errorf("--router-tracking-key-file: %s needs no key; set --router-tracking-hash to %s to use one", s.TrackingHash, keyed)
		case s.TrackingKeyID != "":
			return nil, fmt.Errorf("--router-tracking-key-id: %s needs no key; set --router-tracking-hash to %s to use one", s.TrackingHash, keyed)
		}
		return nil, nil
	}
	switch {
	case s.TrackingKeyFile == "":
		return nil, errors.New("--router-tracking-hash: " + keyed + " needs --router-tracking-key-file, a file of 32 bytes")
	case s.TrackingKeyID == "":
		return nil, errors.New("--router-tracking-hash: " + keyed + " needs --router-tracking-key-id, a name for the key")
	}
	f, err := os.Open(s.TrackingKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--router-tracking-key-file: %w", err)
	}
	defer f.Close()
	secret, err := io.ReadAll(io.LimitReader(f, 1024)) // more than any key has
	if err != nil {
		return nil, fmt.Errorf("--router-tracking-key-file: %w", err)
	}
	key, err := kv.NewTrackingKey(secret, s.TrackingKeyID)
	if err != nil {
		return nil, fmt.Errorf("--router-tracking-key-file %s, --router-tracking-key-id: %w", s.TrackingKeyFile, err)
	}
	return &key, nil
}
