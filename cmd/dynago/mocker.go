package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/internal/config"
	"github.com/dynago/dynago/internal/fake/sglang"
	"github.com/dynago/dynago/internal/fake/trtllm"
	"github.com/dynago/dynago/kv"
)

// mockerCommand imitates engines, by the mock engine and with what goes wrong with
// real ones.
type mockerCommand struct {
	File    fileSettings          `embed:"" group:"Files"`
	Mocker  mockerSettings        `embed:"" group:"Imitation"`
	Engine  engineSettings        `embed:"" group:"Engine"`
	Listen  listenSettings        `embed:"" group:"Worker (without --api)"`
	Observe observabilitySettings `embed:"" group:"Logs and metrics"`
}

type mockerSettings struct {
	API    *string `name:"api" env:"DYN_MOCKER_API" choice:"vllm,sglang,trtllm,llamacpp,ollama,openai" placeholder:"NAME" help:"Speak the wire of this engine, to be attached by --engine: vllm, sglang, trtllm, llamacpp or ollama; otherwise the mock engines are workers of dynago."`
	Host   string  `name:"http-host" aliases:"host" env:"DYN_HTTP_HOST" default:"127.0.0.1" placeholder:"ADDRESS" help:"Listen on this address; 0.0.0.0 is all."`
	Port   int     `name:"http-port" aliases:"port" env:"DYN_HTTP_PORT" default:"8000" range:"0..65535" placeholder:"PORT" help:"Listen on this port, and with several servers on those after it; 0 takes free ones."`
	Count  int     `name:"workers" aliases:"num-workers" env:"DYN_WORKERS,DYN_NUM_WORKERS" default:"1" range:"1..1024" placeholder:"N" help:"Number of servers."`
	Path   string  `name:"model-path" env:"DYN_MODEL_PATH" placeholder:"PATH" help:"Spell as the model in this folder does, and not as the demo model."`
	Name   string  `name:"model-name" aliases:"served-model-name" env:"DYN_MODEL_NAME" placeholder:"NAME" help:"Name of the model; otherwise that of the demo or of the folder."`
	Events string  `name:"kv-events-config" env:"DYN_MOCKER_KV_EVENTS_CONFIG" placeholder:"JSON" help:"Publish KV events as vllm or sglang with this flag of theirs: endpoint, replay_endpoint, topic, buffer_steps, hwm. Each further server takes the ports behind those of the ranks before it."`
	Say    string  `name:"mocker-config" env:"DYN_MOCKER_CONFIG" placeholder:"YAML|FILE" help:"Quirks of the build that is imitated, and faults of requests and events, as a document or the file that holds it; see GET /admin/config."`
	Script string  `name:"mock-script" env:"DYN_MOCK_SCRIPT" placeholder:"FILE" help:"Answer what this YAML file says."`
	Seed   uint64  `name:"mock-seed" env:"DYN_MOCK_SEED" default:"0" placeholder:"N" help:"What answers are made from; servers of one model share it."`
}

// Run imitates until it is told to stop.
func (c *mockerCommand) Run(to outlet, parsed *config.Parsed) error {
	logs, err := newLogs(c.Observe, to.err)
	if err != nil {
		return err
	}
	if err := logs.export(&c.Observe.Telemetry); err != nil {
		return err
	}
	defer logs.close()
	if err := c.File.dump(parsed); err != nil {
		return err
	}
	if c.Mocker.API == nil {
		return c.serveWorkers(to, logs, logs.target("mocker"))
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	return c.serveAPI(to, logs.target("mocker"), signals)
}

// serveAPI serves the wire of an engine.
func (c *mockerCommand) serveAPI(to outlet, log *slog.Logger, signals <-chan os.Signal) error {
	model, err := c.model(log)
	if err != nil {
		return err
	}
	failed := make(chan error, c.Mocker.Count)
	var servers []*http.Server
	attach := "dynago serve"
	for i := range c.Mocker.Count {
		port := c.Mocker.Port
		if port != 0 {
			port += i
		}
		l, err := listen(c.Mocker.Host, port, "--http-port")
		if err != nil {
			return err
		}
		defer l.Close()
		stand, err := newStand(c, model, i)
		if err != nil {
			return err
		}
		defer stand.close()
		h := &http.Server{Handler: stand, ReadHeaderTimeout: 10 * time.Second}
		servers = append(servers, h)
		go func() { failed <- h.Serve(l) }()
		fmt.Fprintf(to.out, "dynago %s imitates %s on %s\n", versionName(), *c.Mocker.API, baseURL(l))
		fmt.Fprintf(to.out, "  model    %s\n", model.name)
		if p := stand.events(); p != nil {
			fmt.Fprintf(to.out, "  events   %s", p.Endpoint())
			if p.Replay() != "" {
				fmt.Fprintf(to.out, ", replay %s", p.Replay())
			}
			fmt.Fprintln(to.out)
		}
		attach += " --engine " + stand.attachAs(l.Addr().(*net.TCPAddr))
	}
	fmt.Fprintf(to.out, "  serve    %s\n", attach)
	select {
	case err := <-failed:
		return err
	case <-signals:
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, h := range servers {
		if h.Shutdown(ctx) != nil {
			h.Close() //nolint:errcheck // the process ends
		}
	}
	return nil
}

// imitated is the model that is imitated.
type imitated struct {
	*modelFiles
	args mock.Args
	mock mock.Config
	spell
	// What prefill and decode servers of one process meet by.
	rooms       *sglang.Bootstrap
	transceiver *trtllm.Transceiver
}

// model reads what the engines are made of.
func (c *mockerCommand) model(log *slog.Logger) (*imitated, error) {
	files, err := newModelFiles(modelSettings{Path: c.Mocker.Path, Name: c.Mocker.Name, ToolParser: "auto", ReasoningParser: "auto", Tokenizer: "default"}, log)
	if err != nil {
		return nil, err
	}
	model, err := files.load()
	if err != nil {
		return nil, err
	}
	workers := workerSettings{engineSettings: c.Engine, Script: c.Mocker.Script}
	args, err := workers.engineArgs()
	if err != nil {
		return nil, err
	}
	if args.Tiers() != [...]int{kv.TierDevice: args.NumGPUBlocks, kv.TierShared: 0} {
		return nil, errors.New("--api: an engine that is imitated tells of its device alone: want no tiers below (--g2-blocks, --g3-blocks, --g4-blocks and their like, DYN_KVBM_*)")
	}
	script, err := workers.script()
	if err != nil {
		return nil, err
	}
	return &imitated{
		modelFiles: files, args: args, spell: spell{model.Tokenizer},
		rooms: &sglang.Bootstrap{}, transceiver: &trtllm.Transceiver{},
		mock: mock.Config{
			Model: files.name, Args: args, Seed: c.Mocker.Seed, Script: script,
			Encode: encoder(model, log), EOS: model.EOS, VocabSize: model.VocabularySize,
			ContextLength: uint32(min(model.ContextLength, args.Capacity())),
		},
	}, nil
}
