package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// runningServer is a server that is asked.
type runningServer struct {
	url, key string
}

// mostAnswer bounds an answer of a server, in bytes.
const mostAnswer = 64 << 20

// call sends a request and reads the answer into out.
func (r *runningServer) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(r.url, "/")+path, body)
	if err != nil {
		return fmt.Errorf("--server: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if r.key != "" {
		req.Header.Set("Authorization", "Bearer "+r.key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("--server: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	if err != nil {
		return fmt.Errorf("--server: %s %s: %w", method, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("--server: %s %s: status %d: %s", method, path, resp.StatusCode, strings.TrimSpace(string(text)))
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("--server: %s %s: %w", method, path, err)
	}
	return nil
}

// The parts of a server's answers that an explanation needs.
type (
	servedModels struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	servedTokens struct {
		Tokens []uint32 `json:"tokens"`
	}
	servedWorker struct {
		ID   uint64 `json:"worker_id"`
		Name string `json:"endpoint"`
	}
	placedRequest struct {
		Model     string         `json:"model_name"`
		Tokens    []uint32       `json:"token_ids"`
		Allowed   []uint64       `json:"allowed_worker_ids,omitzero"`
		Overrides map[string]any `json:"router_config_override,omitempty"`
	}
	servedScores struct {
		Workers []struct {
			ID        uint64 `json:"worker_id"`
			Rank      uint32 `json:"dp_rank"`
			BlockSize int    `json:"block_size"`
			Device    int    `json:"device_blocks"`
			Host      int    `json:"host_pinned_extension_blocks"`
			Disk      int    `json:"disk_extension_blocks"`
			Shared    int    `json:"shared_beyond_device_blocks"`
			Cost      struct {
				PrefillTokens int     `json:"active_prefill_tokens"`
				ActiveBlocks  int     `json:"active_blocks"`
				DecodeBlocks  int     `json:"potential_decode_blocks"`
				Running       int     `json:"active_requests"`
				RawPrefill    float64 `json:"raw_prefill_blocks"`
				Decay         float64 `json:"credit_decay"`
				Credit        float64 `json:"credit_blocks"`
				Scale         float64 `json:"prefill_load_scale"`
				Prefill       float64 `json:"prefill"`
				Decode        float64 `json:"decode"`
				Requests      float64 `json:"requests"`
				Preference    float64 `json:"preference"`
				Total         float64 `json:"total"`
				Probability   float64 `json:"probability"`
			} `json:"cost"`
		} `json:"workers"`
		Barred []struct {
			ID     uint64 `json:"worker_id"`
			Reason string `json:"reason"`
		} `json:"not_eligible"`
	}
	servedSelection struct {
		ID        uint64 `json:"worker_id"`
		Rank      uint32 `json:"dp_rank"`
		BlockSize int    `json:"block_size"`
	}
)

// selectRoutes is where a server's router is asked itself.
const selectRoutes = "/admin/router/select"

// explainServer explains where a running server would send a prompt.
func (c *routeCommand) explainServer(to outlet) error {
	if len(c.Prompts) != 1 || len(c.Explain.Running) > 0 {
		return errors.New("--server: one prompt is explained there; what was sent before, and what is running, the server knows itself")
	}
	if u, err := url.Parse(c.Explain.Server); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("--server: %q: want an address such as http://127.0.0.1:8000", c.Explain.Server)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r := runningServer{c.Explain.Server, c.Explain.APIKey}
	model := c.Model.Name
	if model == "" {
		var models servedModels
		if err := r.call(ctx, "GET", "/v1/models", nil, &models); err != nil {
			return err
		}
		if len(models.Data) == 0 {
			return errors.New("--server: it serves no model")
		}
		model = models.Data[0].ID
	}
	var tokens servedTokens
	conversation := map[string]any{"model": model, "messages": []map[string]string{{"role": "user", "content": c.Prompts[0]}}}
	if err := r.call(ctx, "POST", "/tokenize", conversation, &tokens); err != nil {
		return err
	}
	var workers []servedWorker
	if err := r.call(ctx, "GET", selectRoutes+"/workers", nil, &workers); err != nil {
		return err
	}
	names := make(map[uint64]string)
	for _, w := range workers {
		names[w.ID] = w.Name
	}
	ask := placedRequest{Model: model, Tokens: tokens.Tokens, Overrides: c.Explain.members()}
	for _, name := range c.Explain.Allow {
		id, ok := idOf(names, name)
		if !ok {
			return fmt.Errorf("--allow: %q: there is no such worker", name)
		}
		ask.Allowed = append(ask.Allowed, id)
	}
	var scores servedScores
	if err := r.call(ctx, "POST", selectRoutes+"/overlap_scores", ask, &scores); err != nil {
		return err
	}
	var taken servedSelection
	if err := r.call(ctx, "POST", selectRoutes+"/select", ask, &taken); err != nil {
		return err
	}
	// How it picks workers is not told; most servers go by costs.
	e := explanation{Model: model, Tokens: len(tokens.Tokens), byCost: true}
	for _, b := range scores.Barred {
		e.Out = append(e.Out, outRow{names[b.ID], b.ID, b.Reason})
	}
	size := max(1, taken.BlockSize)
	e.fill(scores.rows(), names, router.Decision{
		Target: kv.Target{Worker: taken.ID, Rank: taken.Rank},
		Blocks: (len(tokens.Tokens) + size - 1) / size,
	})
	return e.show(to.out, c.Explain.JSON)
}

// rows makes of a server's scores what its router has seen.
func (s *servedScores) rows() []router.Row {
	var rows []router.Row
	for _, w := range s.Workers {
		c := &w.Cost
		rows = append(rows, router.Row{
			Candidate: router.Candidate{
				Target: kv.Target{Worker: w.ID, Rank: w.Rank}, BlockSize: w.BlockSize,
				Device: w.Device, Host: w.Host, Disk: w.Disk, Shared: w.Shared,
				PrefillTokens: c.PrefillTokens, ActiveBlocks: c.ActiveBlocks, Requests: c.Running,
				DecodeBlocks: c.DecodeBlocks, Preference: c.Preference, Cost: c.Total,
			},
			Terms: router.Terms{
				RawPrefill: c.RawPrefill, Decay: c.Decay, Credit: c.Credit, Scale: c.Scale, Prefill: c.Prefill,
				Decode: c.Decode, Requests: c.Requests, Preference: c.Preference, Total: c.Total,
			},
			Chance: c.Probability,
		})
	}
	return rows
}

// members are the overrides as they are sent.
func (s *explainSettings) members() map[string]any {
	m := make(map[string]any)
	if s.Credit != nil {
		m["overlap_score_credit"] = *s.Credit
	}
	if s.Scale != nil {
		m["prefill_load_scale"] = *s.Scale
	}
	if s.Reuse != nil {
		m["assume_kv_reuse"] = *s.Reuse
	}
	if s.Track != nil {
		m["track_prefill_tokens"] = *s.Track
	}
	return m
}

func idOf(names map[uint64]string, name string) (uint64, bool) {
	for id, n := range names {
		if n == name {
			return id, true
		}
	}
	return 0, false
}
