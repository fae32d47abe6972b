package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine/attach"
	"github.com/dynago/dynago/internal/config"
)

type doctorCommand struct {
	Addresses []string       `arg:"" optional:"" placeholder:"[KIND=]URL[,KEY=VALUE...]" help:"Engines to examine, as they could stand behind --engine."`
	Doctor    doctorSettings `embed:"" group:"Doctor"`
	settings
}

type doctorSettings struct {
	Server  string        `name:"server" env:"DYN_DOCTOR_SERVER" placeholder:"URL" help:"Examine this running \"dynago serve\" instead."`
	Key     string        `name:"server-key" env:"DYN_DOCTOR_SERVER_KEY" secret:"" placeholder:"KEY" help:"API key of that server."`
	JSON    bool          `name:"json" env:"DYN_DOCTOR_JSON" negatable:"" help:"Print an object instead of sentences."`
	Wait    time.Duration `name:"wait" env:"DYN_DOCTOR_WAIT" default:"10s" unit:"s" placeholder:"TIME" help:"How long an engine may take to tell what it is."`
	Patient time.Duration `name:"patience" env:"DYN_DOCTOR_PATIENCE" default:"60s" unit:"s" placeholder:"TIME" help:"How long a tiny answer may take."`
}

// level says how bad a finding is. It is the exit code, too.
type level int

const (
	fine level = iota
	degraded
	cannotServe
)

var levelNames = [...]string{"fine", "degraded", "cannot serve"}

func (l level) String() string { return levelNames[l] }

// finding is one thing that was tried, and what came of it.
type finding struct {
	Check string `json:"check"`
	Level string `json:"level"`
	Text  string `json:"text"`           // a sentence
	Cure  string `json:"cure,omitempty"` // what to do about it
}

// examination is what was found out about one engine, or one server.
type examination struct {
	Name     string    `json:"name"`
	Verdict  string    `json:"verdict"`
	Findings []finding `json:"findings"`

	worst level
}

// find notes what came of a check. A cure is for what is not fine.
func (x *examination) find(l level, check, cure, format string, args ...any) {
	if l == fine {
		cure = ""
	}
	x.worst = max(x.worst, l)
	x.Findings = append(x.Findings, finding{check, l.String(), fmt.Sprintf(format, args...), cure})
}

// Run examines engines, or a server, and says what works, what does not, and what
// cures it. The exit code is 0 if all is fine, 1 if something is degraded, and 2 if
// somebody cannot serve.
func (c *doctorCommand) Run(to outlet, parsed *config.Parsed) error {
	if err := c.File.dump(parsed); err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	var list []*examination
	if c.Doctor.Server != "" {
		list = append(list, c.examineServer(ctx))
	} else {
		specs, err := c.patients()
		if err != nil {
			fmt.Fprintf(to.err, "dynago: %v\n", err)
			return exit(int(cannotServe))
		}
		// Those who are not up would be waited for one after another.
		done := make([]chan *examination, len(specs))
		for i, spec := range specs {
			done[i] = make(chan *examination, 1)
			go func() { done[i] <- c.examine(ctx, spec) }()
		}
		for _, d := range done {
			list = append(list, <-d)
		}
	}
	worst := fine
	for _, x := range list {
		x.Verdict = x.worst.String()
		worst = max(worst, x.worst)
	}
	if err := c.report(to.out, list, worst); err != nil {
		return err
	}
	if worst != fine {
		return exit(int(worst))
	}
	return nil
}

// patients are the engines that were named.
func (c *doctorCommand) patients() ([]*attach.Spec, error) {
	c.Attach.Engines = append(c.Attach.Engines, c.Addresses...)
	specs, err := c.Attach.read()
	if err != nil {
		return nil, err
	}
	if source := c.source(); source != nil {
		list, err := source.Read()
		if err != nil {
			return nil, fmt.Errorf("--workers-file: %w", err)
		}
		for _, w := range list {
			spec, err := attach.Parse(w.Spec)
			if err != nil {
				return nil, fmt.Errorf("--workers-file: %w", err)
			}
			specs = append(specs, spec)
		}
	}
	if len(specs) == 0 {
		return nil, errors.New(`there is nobody to examine: want an address such as http://127.0.0.1:8000, --engine, --workers-file, a --config with one of them, or --server URL`)
	}
	return specs, nil
}

// quiet is where nobody hears what adapters would tell an operator of a server.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// report prints what was found.
func (c *doctorCommand) report(out io.Writer, list []*examination, worst level) error {
	if c.Doctor.JSON {
		return json.MarshalWrite(out, struct {
			Verdict      string         `json:"verdict"`
			Examinations []*examination `json:"examinations"`
		}{worst.String(), list}, jsontext.WithIndent("  "))
	}
	marks := map[string]string{fine.String(): "ok  ", degraded.String(): "warn", cannotServe.String(): "FAIL"}
	for i, x := range list {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "%s: %s\n", x.Name, x.Verdict)
		for _, f := range x.Findings {
			fmt.Fprintf(out, "  %s  %s\n", marks[f.Level], f.Text)
			if f.Cure != "" {
				fmt.Fprintf(out, "        %s\n", strings.ReplaceAll(f.Cure, "\n", "\n        "))
			}
		}
	}
	return nil
}
