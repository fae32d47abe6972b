package vllm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/dynago/dynago/engine"
)

// Transfer says how a server hands blocks over: its --kv-transfer-config, and the
// environment that goes with it.
type Transfer struct {
	// Connector is such as NixlConnector, Role such as kv_both. Without a connector
	// a server hands nothing over, and takes no notice of what it is told of it.
	Connector, Role string
	// Inner are the connectors of a MultiConnector.
	Inner []string
	// Host and Port are where decode servers read; as the request was addressed,
	// if they are not set. The fake reads over HTTP, at the address of its API.
	Host string
	Port int
	// Timeout is how long blocks wait to be read; 0 = 480 s.
	Timeout time.Duration
	// Fail is "kv_load_failure_policy": "fail": a request whose blocks cannot be
	// read fails, instead of being computed.
	Fail bool
	// NoRoot is a build whose route for tokens does not read kv_transfer_params at
	// the root of the body, but among the extra arguments alone.
	NoRoot bool
	// Fragile is a build whose engine core dies if a request is given up while its
	// blocks are being read.
	Fragile bool
}

const handoffTimeout = 480 * time.Second

// readPath is where decode servers read the blocks of a hand-off.
const readPath = "/side_channel/"

// transfer is kv_transfer_params, as far as any style of handing over has it.
type transfer struct {
	RemoteDecode  bool            `json:"do_remote_decode"`
	RemotePrefill bool            `json:"do_remote_prefill"`
	Engine        *string         `json:"remote_engine_id"`
	Request       string          `json:"remote_request_id"`
	Blocks        json.RawMessage `json:"remote_block_ids"`
	Host          *string         `json:"remote_host"`
	Port          *int            `json:"remote_port"`
	ID            string          `json:"transfer_id"`
	Bootstrap     string          `json:"remote_bootstrap_addr"`
	Decoder       *offloaded      `json:"remote_decoder"`
	Prefiller     *offloaded      `json:"remote_prefiller"`
}

type offloaded struct {
	ID   string `json:"kv_request_id"`
	Host string `json:"remote_host"`
	Port int    `json:"remote_port"`
}

// transferOf returns what a request is told of a hand-off, or nil.
func (s *Server) transferOf(a *asked, gen bool) (*transfer, error) {
	raw := a.Transfer
	if gen && s.config.Transfer.NoRoot {
		raw = a.ExtraArgs.Transfer
	}
	if s.config.Transfer.Connector == "" || len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	t := new(transfer)
	if err := json.Unmarshal(raw, t); err != nil {
		return nil, fmt.Errorf("kv_transfer_params: %w", err)
	}
	return t, nil
}

// key is the name under which a prefill's blocks are kept; "" for none.
func (t *transfer) key(id string) string {
	switch {
	case t == nil:
		return ""
	case t.Decoder != nil:
		return t.Decoder.ID
	case !t.RemoteDecode:
		return ""
	}
	return cmp.Or(t.ID, id)
}

// kept are the blocks that wait for their decode server.
type kept struct {
	ids    []byte // of the blocks, as they were handed over
	blocks blocks
	free   func()
	expire *time.Timer
}

// blocks is what a decode server gets when it reads: how many tokens they hold, and
// what the scheduler of the prefill server, if that is its role, has to say to that
// of the decode server.
type blocks struct {
	Tokens int             `json:"tokens"`
	Sealed json.RawMessage `json:"sealed"`
}

// store is what a server keeps for others, by name.
type store struct {
	mu      sync.Mutex
	kept    map[string]*kept
	coming  map[string]chan struct{} // closed when blocks of this name are kept
	gate    chan struct{}            // reads wait for it; nil: they do not
	expired int
}

// keep holds blocks, and returns their ids. The first is beyond what a float64 holds.
// free is called when they are let go.
func (s *store) keep(key string, b blocks, full int, timeout time.Duration, free func()) []byte {
	ids := make([]uint64, full)
	for i := range ids {
		ids[i] = 1<<53 + 1 + uint64(i)
	}
	k := &kept{ids: encode([][]uint64{ids}), blocks: b, free: free}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[key] = k
	k.expire = time.AfterFunc(cmp.Or(timeout, handoffTimeout), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.kept[key] == k {
			delete(s.kept, key)
			s.expired++
			k.free()
		}
	})
	if c := s.coming[key]; c != nil {
		close(c)
		delete(s.coming, key)
	}
	return k.ids
}

// take gives up the blocks of a name, once; wait says to wait until they are there.
func (s *store) take(ctx context.Context, key string, ids []byte, wait bool) (b blocks, err error) {
	for {
		s.mu.Lock()
		gate := s.gate
		k, ok := s.kept[key]
		if gate == nil && ok {
			defer s.mu.Unlock()
			if len(ids) > 0 && !bytes.Equal(ids, k.ids) {
				return blocks{}, errors.New("these are no blocks of this request")
			}
			k.expire.Stop()
			delete(s.kept, key)
			k.free()
			return k.blocks, nil
		}
		if gate == nil && !wait {
			s.mu.Unlock()
			return blocks{}, errors.New("no blocks are kept under this name")
		}
		if gate == nil {
			if gate = s.coming[key]; gate == nil {
				gate = make(chan struct{})
				s.coming[key] = gate
			}
		}
		s.mu.Unlock()
		select {
		case <-gate:
		case <-ctx.Done():
			return blocks{}, ctx.Err()
		}
	}
}

// clear forgets everything, as a process does that was started anew.
func (s *store) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.kept {
		k.expire.Stop()
	}
	clear(s.kept)
}

// Held returns how many prefills wait for their decode server.
func (s *Server) Held() int {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return len(s.store.kept)
}

// Expired returns how many have waited in vain.
func (s *Server) Expired() int {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.store.expired
}

// Pulls returns how many requests have got blocks from another server.
func (s *Server) Pulls() int64 { return s.pulls.Load() }

// HoldReads lets reads of this server's blocks wait until release is called.
func (s *Server) HoldReads() (release func()) {
	gate := make(chan struct{})
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.gate = gate
	return func() {
		s.store.mu.Lock()
		defer s.store.mu.Unlock()
		if s.store.gate == gate {
			s.store.gate = nil
			close(gate)
		}
	}
}

// handOver keeps the blocks of a prefill that has ended and returns what its client
// is told; nil if there is nothing to hand over.
func (s *Server) handOver(r *http.Request, a *asked, key string, sealed []byte) any {
	full := len(a.Prompt) / s.config.Mock.Args.BlockSize
	reads := slices.Contains([]string{"NixlConnector", "MoRIIOConnector", "MultiConnector"}, s.config.Transfer.Connector)
	meets := slices.Contains([]string{"MooncakeConnector", "OffloadingConnector"}, s.config.Transfer.Connector)
	if key == "" {
		return nil
	}
	release := func() { _ = s.mock.Release(context.Background(), key) } // it never fails
	if !reads && !meets || full == 0 {
		release()
		return nil
	}
	ids := s.store.keep(key, blocks{len(a.Prompt), sealed}, full, s.config.Transfer.Timeout, release)
	if meets {
		return nil // the client knew it all before
	}
	host, port := s.address(r)
	return map[string]any{
		"do_remote_prefill": true, "do_remote_decode": false,
		"remote_engine_id": s.engineID(0), "remote_request_id": key, "remote_block_ids": json.RawMessage(ids),
		"remote_host": host, "remote_port": port, "tp_size": 1, "remote_dp_rank": 0,
	}
}

// address is where this server's blocks are read.
func (s *Server) address(r *http.Request) (host string, port int) {
	host, number, err := net.SplitHostPort(r.Host)
	if err != nil {
		host, number = r.Host, "80"
	}
	port, _ = strconv.Atoi(number)
	return cmp.Or(s.config.Transfer.Host, host), cmp.Or(s.config.Transfer.Port, port)
}

func (s *Server) engineID(rank int) string {
	return fmt.Sprintf("engine-%s-%d-%d", s.config.Mock.Name, s.mock.Epoch(), rank)
}

// pull reads the blocks that a request is to begin with, if it is to.
func (s *Server) pull(ctx context.Context, t *transfer) (b blocks, err error) {
	var at, key string
	var ids []byte
	switch {
	case t == nil:
		return b, nil
	case t.Prefiller != nil:
		at, key = "http://"+net.JoinHostPort(t.Prefiller.Host, strconv.Itoa(t.Prefiller.Port)), t.Prefiller.ID
	case !t.RemotePrefill:
		return b, nil
	case t.Bootstrap != "":
		at, key = t.Bootstrap, t.ID+"?wait=true"
	case t.Host != nil && t.Port != nil:
		at, key, ids = "http://"+net.JoinHostPort(*t.Host, strconv.Itoa(*t.Port)), t.Request, t.Blocks
	default:
		return b, nil // from a store that both use, which the fake has not
	}
	defer func() {
		if ctx.Err() != nil && s.config.Transfer.Fragile {
			s.Kill()
		}
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at+readPath+key, bytes.NewReader(ids))
	if err != nil {
		return b, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return b, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return b, errors.Join(fmt.Errorf("read the blocks of %s: %s %s", key, resp.Status, text), err)
	}
	if err := json.Unmarshal(text, &b); err != nil {
		return b, err
	}
	s.pulls.Add(1)
	return b, nil
}

// leg makes a request of the scheduler one that keeps its blocks, or that begins with
// blocks of another one. Only a scheduler of that role knows of legs.
func (s *Server) leg(q *engine.Request, keep string, b blocks) {
	switch role := s.config.Mock.Args.WorkerType; {
	case role == "prefill" && keep != "":
		q.Disagg = engine.Disagg{Phase: engine.PhasePrefill, Handoff: encode(map[string]any{"do_remote_decode": true, "remote_request_id": keep})}
	case role == "decode" && len(b.Sealed) > 0:
		q.Disagg = engine.Disagg{Phase: engine.PhaseDecode, Handoff: b.Sealed}
	}
}

// read is the route by which other servers read.
func (s *Server) read(w http.ResponseWriter, r *http.Request) {
	ids, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	b, err := s.store.take(r.Context(), r.PathValue("key"), ids, r.URL.Query().Get("wait") == "true")
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	write(w, http.StatusOK, b)
}

// query is that of the bootstrap server of Mooncake.
func (s *Server) query(w http.ResponseWriter, _ *http.Request) {
	ranks := map[string]any{}
	for rank := range max(1, s.config.Mock.Args.DPSize) {
		ranks[strconv.Itoa(rank)] = map[string]any{"engine_id": s.engineID(rank)}
	}
	write(w, http.StatusOK, ranks)
}
