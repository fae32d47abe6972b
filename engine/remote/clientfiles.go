package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
)

// card returns a card with files that lie on this machine. The worker may say nothing
// for as long as patience while it sends them.
func (c *Client) card(ctx context.Context, m *workerpb.Card, patience time.Duration) (*engine.Card, error) {
	card := cardOf(m)
	files := card.Files
	card.Files = nil
	var sent []engine.File
	for _, f := range files {
		switch {
		case strings.HasPrefix(f.URI, workerScheme):
			sent = append(sent, f)
		case strings.HasPrefix(f.URI, "builtin:"):
			card.Files = append(card.Files, f)
		case c.allowed(f.URI):
			f.URI = strings.TrimPrefix(f.URI, "file://")
			card.Files = append(card.Files, f)
		}
	}
	if len(sent) == 0 {
		return card, nil
	}
	dir, err := c.fetch(ctx, sent, patience)
	if err != nil {
		return nil, engine.Errorf(engine.Unavailable, "the files of model %s cannot be had from the worker: %v", card.Model, err)
	}
	for _, f := range sent {
		card.Files = append(card.Files, engine.File{Kind: f.Kind, URI: dir, SHA256: f.SHA256, Size: f.Size})
	}
	return card, nil
}

// allowed says whether a card may name a place on this machine.
func (c *Client) allowed(uri string) bool {
	path := strings.TrimPrefix(uri, "file://")
	if !filepath.IsAbs(path) {
		return false
	}
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(c.config.Folders, func(dir string) bool {
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return false
		}
		rel, err := filepath.Rel(dir, path)
		return err == nil && filepath.IsLocal(rel)
	})
}

// fetch brings the files of a card to this machine, unless they are here, and returns
// their folder. It is named for what is in it, so that workers that have the same
// files share it, and nothing in it ever changes.
func (c *Client) fetch(ctx context.Context, files []engine.File, patience time.Duration) (dir string, err error) {
	sum := sha256.New()
	for i := range files {
		f := &files[i]
		name := strings.TrimPrefix(f.URI, workerScheme)
		_, known := kindOfFile(name)
		raw, err := hex.DecodeString(f.SHA256)
		switch {
		case !known || !filepath.IsLocal(name) || filepath.Base(name) != name:
			return "", fmt.Errorf("%q is no name of a file that is wanted", name)
		case err != nil || len(raw) != sha256.Size:
			return "", fmt.Errorf("%s: %q is no SHA-256", name, f.SHA256)
		case f.Size < 0 || f.Size > maxFile:
			return "", fmt.Errorf("%s has %d bytes, want at most %d", name, f.Size, maxFile)
		}
		fmt.Fprintf(sum, "%s %s\n", name, strings.ToLower(f.SHA256))
	}
	cache := c.config.Cache
	if cache == "" {
		if cache, err = os.UserCacheDir(); err != nil {
			return "", err
		}
		cache = filepath.Join(cache, "dynago", "models")
	}
	dir = filepath.Join(cache, hex.EncodeToString(sum.Sum(nil)))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for i := range files {
		name := strings.TrimPrefix(files[i].URI, workerScheme)
		if err := c.fetchFile(ctx, &files[i], name, filepath.Join(dir, name), patience); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
	}
	return dir, nil
}

// fetchFile brings one file, unless it is here and whole.
func (c *Client) fetchFile(ctx context.Context, f *engine.File, name, to string, patience time.Duration) error {
	if sum, _, err := digest(to); err == nil && strings.EqualFold(sum, f.SHA256) {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(patience, func() { cancel(fmt.Errorf("nothing more has come for %v", patience)) })
	defer silence.Stop()
	stream, err := c.worker().File(c.signed(ctx), &workerpb.FileRequest{Name: name})
	if err != nil {
		return errorOf(err, nil, false)
	}
	part, err := os.CreateTemp(filepath.Dir(to), ".part-*")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name())
	defer part.Close()
	h := sha256.New()
	for size := int64(0); ; {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return errorOf(err, stream.Trailer(), true)
		}
		if len(m.Data) > 0 {
			silence.Reset(patience)
		}
		if size += int64(len(m.Data)); size > maxFile || f.Size > 0 && size > f.Size {
			return fmt.Errorf("the worker sends more than the %d bytes that its card says", f.Size)
		}
		h.Write(m.Data)
		if _, err := part.Write(m.Data); err != nil {
			return err
		}
	}
	if sum := hex.EncodeToString(h.Sum(nil)); !strings.EqualFold(sum, f.SHA256) {
		return fmt.Errorf("the SHA-256 is %s, and the card says %s", sum, f.SHA256)
	}
	if err := part.Close(); err != nil {
		return err
	}
	if err := os.Chmod(part.Name(), 0o644); err != nil {
		return err
	}
	return os.Rename(part.Name(), to)
}
