package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/kvstore"
	"github.com/dynago/dynago/kvstore/admin"
)

// usualKVStoreHTTP is where a kvstore answers over HTTP unless it is told
// otherwise, and only if nobody else listens there.
const usualKVStoreHTTP = "127.0.0.1:6880"

// kvstoreHTTP is the side of a kvstore for operators.
type kvstoreHTTP struct {
	server   *http.Server
	listener net.Listener
	failed   chan error
}

// openHTTP listens for operators; nil is for nobody. A port that was not asked for
// may be taken: a second store on a machine should not need a flag.
func (c *kvstoreSettings) openHTTP(store *kvstore.Server, further []prometheus.Collector, log *slog.Logger) (*kvstoreHTTP, error) {
	address, asked := usualKVStoreHTTP, c.HTTP != nil
	if asked {
		address = *c.HTTP
	}
	if address == "off" {
		return nil, nil
	}
	host, port, err := splitHostPort("--http-listen", address)
	if err != nil {
		return nil, err
	}
	h, err := admin.New(admin.Options{Store: store, Collectors: further, Log: log})
	if err != nil {
		return nil, err
	}
	l, err := listen(host, port, "--http-listen")
	if err != nil && !asked {
		log.Warn("no health, metrics or administration over HTTP: choose an address with --http-listen, or off", "address", address, "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	side := &kvstoreHTTP{server: h.HTTP(), listener: l, failed: make(chan error, 1)}
	go func() {
		if err := side.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			side.failed <- fmt.Errorf("--http-listen: %w", err)
		}
	}()
	return side, nil
}

// failure tells if listening ends by itself.
func (h *kvstoreHTTP) failure() <-chan error {
	if h == nil {
		return nil
	}
	return h.failed
}

// close lets requests be answered until ctx ends.
func (h *kvstoreHTTP) close(ctx context.Context) {
	if h != nil && h.server.Shutdown(ctx) != nil {
		h.server.Close() //nolint:errcheck // who is left is cut off
	}
}
