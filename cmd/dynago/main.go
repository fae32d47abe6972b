// Command dynago serves large language models to AI agents: an OpenAI API in
// front of a fleet of workers, each request routed to where its prompt is
// cached.
//
//	dynago serve          a whole system in one process
//	dynago worker         serve one engine to frontends in other processes
//	dynago router         answer dispatchers of others over HTTP
//	dynago route TEXT     show where a prompt would go, and why
//	dynago replay TRACE   replay requests in virtual time, and report
//	dynago trace          show what was recorded of agents, or convert it
//	dynago mocker         imitate an engine, its quirks and its faults
//	dynago kvstore        keep KV-cache values that engines share, as Redis would
//	dynago doctor URL     examine an engine, or a running server
//	dynago env            show all settings and where they came from, or what
//	                      points an agent here
//	dynago version
//
// Settings come from flags, then DYN_ variables, then a YAML file, then
// defaults.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/alecthomas/kong"

	"github.com/dynago/dynago/internal/config"
)

// version is set when a release is built.
var version = ""

// commands are what the binary can do.
type commands struct {
	Serve   serveCommand   `cmd:"" help:"Serve a model over HTTP: frontend, router and workers in one process."`
	Worker  workerCommand  `cmd:"" help:"Serve one engine to frontends in other processes."`
	Router  routerCommand  `cmd:"" help:"Answer dispatchers of others over HTTP: register workers, choose one, book a request."`
	Route   routeCommand   `cmd:"" help:"Show where a prompt would go, and what each worker would have cost."`
	Replay  replayCommand  `cmd:"" help:"Replay recorded or made-up requests in virtual time, and report how they fared."`
	Trace   traceCommand   `cmd:"" help:"Show what was recorded of agents and their requests, count it up, or convert it."`
	Mocker  mockerCommand  `cmd:"" help:"Imitate an engine: its own wire with --api, its quirks and faults as they are switched on."`
	KVStore kvstoreCommand `cmd:"" name:"kvstore" help:"Keep KV-cache values that engines share, for clients of Redis such as LMCache."`
	Doctor  doctorCommand  `cmd:"" help:"Examine engines, or a running server: what works, what does not, and what cures it."`
	Env     envCommand     `cmd:"" help:"Show every setting, its value, and where that came from; or what points an agent here."`
	Version versionCommand `cmd:"" help:"Show the version."`
}

// outlet is where a command writes.
type outlet struct{ out, err io.Writer }

func main() { os.Exit(run(os.Args[1:], outlet{os.Stdout, os.Stderr})) }

// run runs one command line and returns the exit code.
func run(args []string, to outlet) int {
	if err := execute(args, to); err != nil {
		if quit, ok := errors.AsType[exit](err); ok {
			return int(quit)
		}
		fmt.Fprintf(to.err, "dynago: %v\n", err)
		return 1
	}
	return 0
}

// exit ends the program with a code and without a word.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

func execute(args []string, to outlet) (err error) {
	// kong wants to end the process itself after printing help.
	defer func() {
		if quit, ok := recover().(exit); ok {
			err = quit
		}
	}()
	var cli commands
	parser, err := config.New(&cli,
		kong.Name("dynago"),
		kong.Description("Serve large language models to AI agents."),
		kong.Writers(to.out, to.err),
		kong.Exit(func(code int) { panic(exit(code)) }),
	)
	if err != nil {
		return err
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		if len(args) == 0 {
			err = fmt.Errorf("%w; run \"dynago serve\" to start, or \"dynago --help\"", err)
		}
		return err
	}
	return parsed.Run(to, parsed)
}

type versionCommand struct{}

func (versionCommand) Run(to outlet) error {
	_, err := fmt.Fprintf(to.out, "dynago %s %s %s/%s\n", versionName(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// versionName returns the release, or what the build knows of itself.
func versionName() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	name, revision, dirty := "devel", "", ""
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			revision = "+" + s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	return name + revision + dirty
}
