//go:build e2e

package chattemplate_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dynago/dynago/internal/models"
	"github.com/dynago/dynago/prompt"
)

// The prompts of gpt-oss are those of the library, id for id, whether its files
// have no template or the one that it ships.
func TestFetchedHarmony(t *testing.T) {
	const template = "ardanlabs-jinja/gpt-oss-20b-Q8_0.jinja"
	dir := filepath.Join("..", models.Dir)
	files := slices.DeleteFunc(models.Files(), func(f models.File) bool {
		return filepath.Dir(f.Name) != "gpt-oss" && f.Name != template
	})
	if len(files) != 3 {
		t.Fatalf("the list has %d of 3 files", len(files))
	}
	if err := models.Fetch(t.Context(), dir, files, os.Stderr); err != nil {
		t.Fatal(err)
	}
	for name, withTemplate := range map[string]bool{"no template": false, "template": true} {
		t.Run(name, func(t *testing.T) {
			m, err := prompt.Load(func(name string) ([]byte, error) {
				switch name {
				case "tokenizer.json", "tokenizer_config.json":
					return models.Read(dir, "gpt-oss/"+name)
				case "chat_template.jinja":
					if withTemplate {
						return models.Read(dir, template)
					}
				}
				return nil, fs.ErrNotExist
			}, prompt.Parsers{})
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range goldens(t) {
				r, o := g.request()
				if len(g.Args) == 0 {
					r.TemplateArgs = []byte(`{"conversation_start_date":"2025-06-28"}`)
				} else {
					r.TemplateArgs = append([]byte(`{"conversation_start_date":"2025-06-28",`), g.Args[1:]...)
				}
				r.ToolChoice.Hidden = o.HideTools
				ids, err := m.Tokens(r, o.AddGenerationPrompt)
				if err != nil {
					t.Errorf("%s: %v", g.Name, err)
					continue
				}
				var packed []byte
				for _, id := range ids {
					packed = binary.LittleEndian.AppendUint32(packed, id)
				}
				if sum := sha256.Sum256(packed); hex.EncodeToString(sum[:8]) != g.IDs {
					t.Errorf("%s: other ids than the library's for\n%s", g.Name, m.Tokenizer.Decode(ids, false))
				}
			}
		})
	}
}
