package main

import (
	"bufio"
	"fmt"
	"io"

	"github.com/dynago/dynago/trace/satf"
	"github.com/dynago/dynago/trace/tree"
)

type traceSATF struct {
	recordedSettings
	Output string `name:"output" short:"o" env:"DYN_OUTPUT" default:"satf.json" placeholder:"FILE" help:"Write the document here, once all of it is known."`
	Pretty bool   `name:"pretty" env:"DYN_PRETTY" negatable:"" help:"Indent the JSON."`
	Strict bool   `name:"strict" env:"DYN_STRICT" negatable:"" help:"Refuse requests that cannot be replayed, and records that are there twice."`
}

// Run converts a trace. All of it is held.
func (c *traceSATF) Run(to outlet) error {
	rows, _, err := c.rows(to, true)
	if err != nil {
		return err
	}
	b := tree.Builder{Prompts: true}
	for r, err := range rows {
		if err != nil {
			return err
		}
		b.Add(r.Record)
	}
	t := b.Tree()
	var written satf.Written
	err = writeWhole("--output", c.Output, func(out io.Writer) (err error) {
		buffered := bufio.NewWriter(out)
		if written, err = satf.Write(buffered, t, satf.Options{Version: versionName(), Pretty: c.Pretty, Strict: c.Strict}); err != nil {
			return err
		}
		return buffered.Flush()
	})
	if err != nil {
		return err
	}
	if t.Duplicates > 0 {
		fmt.Fprintf(to.err, "dynago: trace: %s passed over, which had been there before\n", count(t.Duplicates, "record"))
	}
	if written.Skipped > 0 {
		fmt.Fprintf(to.err, "dynago: trace: %s left out, because no hashes of its prompt were recorded\n", count(written.Skipped, "request"))
	}
	fmt.Fprintf(to.out, "Sessions: %d\nRequests: %d\nTools: %d\nTrace block size: %d\n", written.Sessions, written.Requests, written.Tools, written.BlockSize)
	return nil
}
