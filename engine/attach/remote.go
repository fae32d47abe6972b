package attach

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/remote"
)

// Workers of ours are told by the scheme of their addresses: there is nothing to find
// out, and nothing of HTTP to ask.

// schemes begin the addresses of servers, and workerSchemes those of workers of ours.
var (
	schemes       = []string{"http://", "https://", "grpc://", "grpcs://"}
	workerSchemes = schemes[2:]
)

// reachable says whether the address can be one of this kind of server, and settles
// the kind of a worker of ours.
func (s *Spec) reachable() error {
	worker := begins(s.URL, workerSchemes...)
	if s.Kind == Auto && worker {
		s.Kind = Remote
	}
	switch {
	case s.Kind != Remote && worker:
		return fmt.Errorf("url: %q is the address of a worker of dynago: want kind %s, or the server's own address", s.URL, Remote)
	case s.Kind != Remote:
		if _, err := httpapi.New(s.http()); err != nil {
			return fmt.Errorf("url: %w", err)
		}
		return nil
	case !worker:
		return fmt.Errorf("url: %q: want grpc://HOST:PORT, or grpcs://HOST:PORT for TLS", s.URL)
	case len(s.Header) > 0:
		return errors.New("headers: workers of dynago read none: want api_key for a key")
	}
	e, err := remote.New(s.worker(nil))
	if err != nil {
		return fmt.Errorf("url: %w", err)
	}
	return e.Close()
}

// worker is how a worker of ours is reached.
func (s *Spec) worker(log *slog.Logger) remote.Config {
	return remote.Config{URL: s.URL, Key: s.Key, Insecure: s.Insecure, TLS: s.TLS, Connections: s.Connections, Folders: s.Folders, Log: log}
}

// asked returns the client by which a server is asked what it is; nil for a worker of
// ours.
func (s *Spec) asked() (*httpapi.Client, error) {
	if s.Kind == Remote {
		return nil, nil
	}
	return httpapi.New(s.http())
}
