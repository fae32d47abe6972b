package main

import (
	"fmt"
	"slices"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/echo"
	"github.com/dynago/dynago/fleet"
)

// addEcho lets a worker join that gives tensors back, if its model has a name.
func (sys *system) addEcho(model string) error {
	if model == "" {
		return nil
	}
	e, err := echo.New(model)
	if err != nil {
		return err
	}
	if _, err := sys.fleet.Add(fleet.Entry{Name: "tensor-echo", Engine: e}); err != nil {
		return fmt.Errorf("--tensor-echo: %w", err)
	}
	return nil
}

// echoes is that worker for frontends in other processes.
func echoes(model string) ([]behind, error) {
	e, err := echo.New(model)
	if err != nil {
		return nil, err
	}
	return []behind{{engine: e, name: "tensors of " + model}}, nil
}

// tensorsAlone says whether a model has nothing for whoever wants text.
func tensorsAlone(card *engine.Card) bool {
	return card != nil && len(card.Accepts) > 0 && !slices.ContainsFunc(card.Accepts, func(in engine.Input) bool { return in != engine.InputTensor })
}
