package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/dynago/dynago/internal/config"
)

type envCommand struct {
	Harness string `arg:"" optional:"" placeholder:"HARNESS" help:"Print instead what points this agent here: claude, codex or opencode."`
	settings
}

// Run shows the settings that "serve" would use with the same arguments, or what
// points a harness at such a server.
func (c *envCommand) Run(to outlet, parsed *config.Parsed) error {
	if err := c.File.dump(parsed); err != nil {
		return err
	}
	if c.Harness != "" {
		return c.printHarness(to.out)
	}
	w := tabwriter.NewWriter(to.out, 0, 0, 2, ' ', 0)
	group := ""
	for _, s := range parsed.Settings() {
		if s.Group != group {
			if group != "" {
				fmt.Fprintln(w)
			}
			group = s.Group
			fmt.Fprintf(w, "%s\tVALUE\tFROM\tDEFAULT\tENVIRONMENT\n", strings.ToUpper(group))
		}
		fmt.Fprintf(w, "--%s\t%s\t%s\t%s\t%s\n", s.Name, dash(s.Value), s.Source, dash(s.Default), strings.Join(s.Envs, " "))
	}
	return w.Flush()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
