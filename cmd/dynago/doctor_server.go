package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// What a server says of itself, as far as an examination needs it.
type (
	rosterOf struct {
		Workers []struct {
			ID       uint64 `json:"worker_id"`
			Name     string `json:"worker"`
			Model    string `json:"model"`
			State    string `json:"state"`
			Reason   string `json:"reason"`
			Refused  string `json:"refused_for"`
			Restarts uint64 `json:"restarts"`
		} `json:"workers"`
		Sources []struct {
			Name  string `json:"source"`
			Fault string `json:"fault"`
		} `json:"sources"`
	}
	completed struct {
		Usage struct {
			Completion int `json:"completion_tokens"`
		} `json:"usage"`
	}
)

// examineServer asks a running server how its workers are, and each model for a tiny
// answer.
func (c *doctorCommand) examineServer(ctx context.Context) *examination {
	x := &examination{Name: c.Doctor.Server}
	s := &runningServer{url: c.Doctor.Server, key: c.Doctor.Key}
	told := func(err error) string { return strings.TrimPrefix(err.Error(), "--server: ") }
	call := func(method, path string, in, out any) error {
		ctx, cancel := context.WithTimeout(ctx, c.Doctor.Patient)
		defer cancel()
		return s.call(ctx, method, path, in, out)
	}
	var health struct {
		Status string `json:"status"`
	}
	if err := call("GET", "/health", nil, &health); err != nil {
		x.find(cannotServe, "reach", "Start it with \"dynago serve\", or give its real address; with --api-keys-file, give --server-key.", "The server does not answer: %s.", told(err))
		return x
	}
	x.find(fine, "reach", "", "The server is up.")
	var models servedModels
	if err := call("GET", "/v1/models", nil, &models); err != nil {
		x.find(cannotServe, "models", "", "It does not list its models: %s.", told(err))
		return x
	}
	x.roster(call, told)
	if len(models.Data) == 0 {
		x.find(cannotServe, "models", "Look at its workers above, or attach some: --engine, --workers-file, or POST /admin/workers.", "No model can be asked for now.")
	}
	for _, m := range models.Data {
		begin, out := time.Now(), completed{}
		body := map[string]any{"model": m.ID, "max_tokens": 4, "messages": []map[string]string{{"role": "user", "content": "Say hello."}}}
		err := call("POST", "/v1/chat/completions", body, &out)
		if err != nil && strings.Contains(err.Error(), "takes tensors") {
			x.tensors(m.ID, call)
			continue
		}
		if err != nil {
			x.find(cannotServe, "generate", "Examine its engines with dynago doctor and their addresses.", "Model %s does not answer: %s.", m.ID, told(err))
			continue
		}
		x.find(fine, "generate", "", "Model %s answers: %d tokens after %s.", m.ID, out.Usage.Completion, time.Since(begin).Round(time.Millisecond))
	}
	return x
}

// tensors looks whether clients can reach a model that takes tensors. What it would
// take is not known here, so that it is not asked.
func (x *examination) tensors(model string, call func(method, path string, in, out any) error) {
	if err := call("GET", "/v2", nil, &struct{}{}); err != nil {
		x.find(degraded, "tensors", "Start the server with --kserve-grpc-server, or with --kserve-rest.", "Model %s takes tensors, and the protocol for them is turned off.", model)
		return
	}
	x.find(fine, "tensors", "", "Model %s takes tensors and is ready; it was not asked.", model)
}

// roster looks at the workers of a server and where they come from.
func (x *examination) roster(call func(method, path string, in, out any) error, told func(error) string) {
	var roster rosterOf
	if err := call("GET", "/admin/workers", nil, &roster); err != nil {
		x.find(degraded, "workers", "Give the address of its admin port as --server.", "It does not list its workers here: %s.", told(err))
		return
	}
	ready := 0
	for _, w := range roster.Workers {
		of := ""
		if w.Model != "" {
			of = " of model " + w.Model
		}
		switch {
		case w.State == "ready":
			ready++
			if w.Restarts > 0 {
				x.find(fine, "workers", "", "Worker %s%s has been restarted %d times since it joined.", w.Name, of, w.Restarts)
			}
		case w.Refused != "":
			x.find(degraded, "workers", "Serve the same model's files everywhere, or give one of them another name.", "Worker %s is refused: %s.", w.Name, strings.TrimSuffix(w.Reason, "."))
		case w.State == "draining":
			x.find(degraded, "workers", fmt.Sprintf("If that is not wanted any more: POST /admin/workers/%d/resume.", w.ID), "Worker %s%s is being drained.", w.Name, of)
		default:
			reason := w.Reason
			if reason == "" {
				reason = "it has failed requests just now"
			}
			x.find(degraded, "workers", "Examine it with dynago doctor "+w.Name+".", "Worker %s%s is %s: %s.", w.Name, of, w.State, strings.TrimSuffix(reason, "."))
		}
	}
	x.find(fine, "workers", "", "%d of %d workers are ready.", ready, len(roster.Workers))
	for _, s := range roster.Sources {
		if s.Fault == "" {
			continue
		}
		x.find(degraded, "sources", "Mend it, and POST /admin/workers/reload.", "Its list of workers from %s is not followed: %s.", s.Name, strings.TrimSuffix(s.Fault, "."))
	}
}
