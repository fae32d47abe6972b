package live

import (
	"context"
	"fmt"

	"github.com/dynago/dynago/kvevent"
	"github.com/dynago/dynago/kvevent/zmtp"
)

// BlockSize listens to a publisher until it tells of a block, and returns how many
// tokens that has: the size by which an engine hashes, whatever its configuration
// says. It waits until ctx ends for an engine that stores nothing.
func BlockSize(ctx context.Context, e kvevent.Endpoint, topic string, sockets zmtp.Options) (uint32, error) {
	sub := zmtp.NewSub(sockets)
	defer sub.Close()
	err := sub.Subscribe(topic)
	switch {
	case err != nil:
	case e.Bind:
		_, err = sub.Bind(ctx, e.Events)
	default:
		err = sub.Connect(e.Events)
	}
	if err != nil {
		return 0, fmt.Errorf("learn the block size from %s: %w", e.Events, err)
	}
	d := kvevent.NewDecoder(kvevent.Config{Rank: e.Rank})
	for m, err := range sub.Messages(ctx) {
		if err != nil {
			return 0, fmt.Errorf("learn the block size from %s: %w", e.Events, err)
		}
		if m.Event != zmtp.Data || len(m.Parts) != 3 {
			continue
		}
		if _, _, err := d.Decode(m.Parts[2]); err == nil && d.BlockSize() > 0 {
			return uint32(d.BlockSize()), nil
		}
	}
	return 0, fmt.Errorf("learn the block size from %s: %w", e.Events, zmtp.ErrClosed)
}
