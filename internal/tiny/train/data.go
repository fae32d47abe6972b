package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/internal/tiny/train/talk"
	"github.com/dynago/dynago/tokenizer"
)

// The template is the demo's, so that one parser reads both.
var template = func() *chattemplate.Template {
	source, err := demo.File("chat_template.jinja")
	if err != nil {
		panic(err)
	}
	t, err := chattemplate.Compile(string(source), chattemplate.Config{EOS: "<|im_end|>"})
	if err != nil {
		panic(err)
	}
	return t
}()

func render(t *talk.Talk) (string, error) { return template.Render(&t.Request, chattemplate.Options{}) }

const contextSize = 2048

// show prints what some conversations look like.
func show(args []string) error {
	seed, n, held, done := uint64(1), 10, false, 1.0
	if err := flags("show", args, func(f *flag.FlagSet) {
		f.Uint64Var(&seed, "seed", seed, "of the source")
		f.IntVar(&n, "n", n, "how many")
		f.BoolVar(&held, "held", held, "out of training")
		f.Float64Var(&done, "done", done, "part of the course that is over")
	}); err != nil {
		return err
	}
	source := talk.New(seed, held)
	for range n {
		t := source.Next(talk.Course(done))
		text, err := render(t)
		if err != nil {
			return err
		}
		fmt.Printf("%s%v\n\n", text, t.Answers)
	}
	return nil
}

// makeData writes conversations as tokens for train.py: NAME.tokens are uint16,
// NAME.labels has for each token 0 or the task of the answer that it belongs to
// plus one, and NAME.lengths are uint32, one per conversation.
func makeData(args []string) error {
	var out, vocab string
	n, test, seed := talk.Conversations, 1500, uint64(1)
	if err := flags("data", args, func(f *flag.FlagSet) {
		f.StringVar(&out, "out", ".", "folder that is written to")
		f.StringVar(&vocab, "tokenizer", "internal/tiny/tokenizer.json.gz", "the tokenizer")
		f.IntVar(&n, "n", n, "how many conversations to train on")
		f.IntVar(&test, "held", test, "how many to judge by")
		f.Uint64Var(&seed, "seed", seed, "of the training text")
	}); err != nil {
		return err
	}
	tok, err := loadTokenizer(vocab)
	if err != nil {
		return err
	}
	if err := write(filepath.Join(out, "train"), tok, talk.New(seed, false), n, func(i int) talk.Lesson { return talk.Course(float64(i) / float64(n)) }); err != nil {
		return err
	}
	return write(filepath.Join(out, "held"), tok, talk.New(seed+1000, true), test, func(int) talk.Lesson { return talk.Course(1) })
}

func loadTokenizer(path string) (*tokenizer.Tokenizer, error) {
	packed, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	file, err := unpack(packed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return tokenizer.Load(file)
}

func write(name string, tok *tokenizer.Tokenizer, source *talk.Source, n int, lessons func(i int) talk.Lesson) (err error) {
	var files [3]*bufio.Writer
	for i, kind := range []string{"tokens", "labels", "lengths"} {
		f, err := os.Create(name + "." + kind)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		files[i] = bufio.NewWriter(f)
	}
	total, taught := 0, 0
	for i := range n {
		t := source.Next(lessons(i))
		text, err := render(t)
		if err != nil {
			return err
		}
		ids := tok.Append(nil, text)
		if len(ids) > contextSize {
			continue
		}
		labels, err := label(tok, t, ids)
		if err != nil {
			return fmt.Errorf("%w in\n%s", err, text)
		}
		var buf []byte
		for _, id := range ids {
			buf = binary.LittleEndian.AppendUint16(buf, uint16(id))
		}
		files[0].Write(buf)
		files[1].Write(labels)
		files[2].Write(binary.LittleEndian.AppendUint32(nil, uint32(len(ids))))
		total += len(ids)
		for _, l := range labels {
			if l > 0 {
				taught++
			}
		}
	}
	for _, f := range files {
		if err := f.Flush(); err != nil {
			return err
		}
	}
	fmt.Printf("%s: %d conversations, %d tokens, %d of answers\n", name, n, total, taught)
	return nil
}

// label finds the answers among the tokens.
func label(tok *tokenizer.Tokenizer, t *talk.Talk, ids []uint32) ([]byte, error) {
	start, _ := tok.ID("<|im_start|>")
	end, _ := tok.ID("<|im_end|>")
	open := tok.Append(nil, "<|im_start|>assistant\n")
	silent := tok.Append(nil, "<think>\n\n</think>\n\n")
	quiet := t.Request.Thinking.Enabled != nil
	labels := make([]byte, len(ids))
	n := 0
	for i := 0; i < len(ids); i++ {
		if ids[i] != start || !slices.Equal(ids[i:min(len(ids), i+len(open))], open) {
			continue
		}
		if n == len(t.Answers) {
			return nil, errors.New("more answers than were made")
		}
		a := t.Answers[n]
		n++
		i += len(open)
		if quiet {
			i += len(silent)
		}
		var said []byte
		for ; ids[i] != end; i++ {
			if !a.Given && (!a.Formed || bytes.Contains(said, []byte(`":`))) {
				labels[i] = byte(a.Task) + 1
			}
			said = append(said, tok.Bytes(ids[i])...)
		}
		if !a.Given {
			labels[i] = byte(a.Task) + 1
		}
	}
	if n != len(t.Answers) {
		return nil, fmt.Errorf("found %d answers, want %d", n, len(t.Answers))
	}
	return labels, nil
}
