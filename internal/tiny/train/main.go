// Command train makes the model in the box, but for the training itself, which
// train.py does. README.md has the whole recipe.
//
//	go run ./internal/tiny/train tokenizer -out internal/tiny
//	go run ./internal/tiny/train data -out DIR
//	go run ./internal/tiny/train show
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal("train: say what to make: tokenizer, data, pack, score or show")
	}
	commands := map[string]func(args []string) error{"tokenizer": makeTokenizer, "data": makeData, "pack": makeModel, "score": score, "show": show}
	run, ok := commands[os.Args[1]]
	if !ok {
		log.Fatalf("train: %q: want tokenizer, data, pack, score or show", os.Args[1])
	}
	if err := run(os.Args[2:]); err != nil {
		log.Fatalf("train: %s: %v", os.Args[1], err)
	}
}

// flags reads the flags of one command.
func flags(name string, args []string, define func(*flag.FlagSet)) error {
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	define(set)
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("%q: no more arguments are known", set.Arg(0))
	}
	return nil
}
