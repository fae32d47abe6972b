package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dynago/dynago/engine/tiny/weights"
	"github.com/dynago/dynago/internal/tiny/train/exam"
	"github.com/dynago/dynago/internal/tiny/train/talk"
)

// score asks a packed model held-out questions, or with -held=false such as are made
// of what training has, through the forward pass that serves it.
func score(args []string) error {
	folder, n, seed, wrong, held := "internal/tiny", 1000, uint64(2001), 0, true
	if err := flags("score", args, func(f *flag.FlagSet) {
		f.StringVar(&folder, "model", folder, "folder with model.gguf and tokenizer.json.gz")
		f.IntVar(&n, "n", n, "conversations")
		f.Uint64Var(&seed, "seed", seed, "of the conversations")
		f.BoolVar(&held, "held", held, "made of what training never has")
		f.IntVar(&wrong, "wrong", wrong, "how many wrong answers to show")
	}); err != nil {
		return err
	}
	tok, err := loadTokenizer(filepath.Join(folder, "tokenizer.json.gz"))
	if err != nil {
		return err
	}
	model, err := weights.Load(filepath.Join(folder, "model.gguf"), 0)
	if err != nil {
		return err
	}
	pupil, report, source := exam.NewPupil(model, tok), exam.Report{}, talk.New(seed, held)
	for range n {
		questions, err := exam.Questions(source.Next(talk.Course(1)), template)
		if err != nil {
			return err
		}
		for _, q := range questions {
			said, err := pupil.Answer(q.Prompt)
			if err != nil {
				return err
			}
			right := q.Right(said)
			report.Add(q.Task, right)
			if !right && wrong > 0 {
				wrong--
				fmt.Fprintf(os.Stderr, "%s\n%s\n--- want\n%s\n--- said\n%s\n\n", q.Task, q.Prompt, q.Want, said)
			}
		}
	}
	fmt.Print(report)
	return nil
}
