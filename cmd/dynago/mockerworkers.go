package main

import (
	"errors"
	"log/slog"
)

// serveWorkers puts mock engines behind the service of workers, each on a port of its
// own. What is imitated by --api alone is refused, so that nobody waits for it.
func (c *mockerCommand) serveWorkers(to outlet, logs *logSet, log *slog.Logger) error {
	switch m := &c.Mocker; {
	case m.Events != "":
		return errors.New("--kv-events-config: want --api vllm or sglang with it: workers of dynago tell of their caches by themselves")
	case m.Say != "":
		return errors.New("--mocker-config: want --api with it: workers of dynago have no quirks")
	}
	w, err := c.Listen.open(log)
	if err != nil {
		return err
	}
	model := modelSettings{Path: c.Mocker.Path, Name: c.Mocker.Name, ToolParser: "auto", ReasoningParser: "auto", Tokenizer: "default"}
	engines, err := mocks(model, workerSettings{Count: &c.Mocker.Count, engineSettings: c.Engine, Script: c.Mocker.Script, Seed: c.Mocker.Seed}, log)
	if err != nil {
		return err
	}
	defer closeAll(engines)
	return w.serve(to, logs, engines)
}
