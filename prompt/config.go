package prompt

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/tokenizer"
)

// settings are what the files beside the vocabulary say of a model. Of the
// settings for sampling none is here: what a request leaves open is the engine's
// to fill. Nor is clean_up_tokenization_spaces, since text that streams cannot be
// changed afterwards, and engines do not change it either.
type settings struct {
	class     string // of the tokenizer, without the word Fast
	modelType string

	bos, eos, unk string
	added         []tokenizer.AddedToken // in the order of ids
	extra         []string               // contents that are special, but for those above

	addBOS, addEOS         bool
	addBOSGiven            bool
	addPrefixSpace, prefix bool   // the second tells that the first is given
	pattern                string // of a rank file

	contextLength int
	maxNewTokens  int
	sampling      engine.Sampling
	eosIDs        []uint32
	templates     map[string]string
	templateFile  string // which they came from

	tokenizer object // tokenizer_config.json, for what only some tokenizers know
}

// maxID is more than any tokenizer's ids, as package tokenizer has it.
const maxID = 1 << 22

// settings reads the files that say what the vocabulary does not.
func (s *Snapshot) settings() (*settings, error) {
	var files [4]object
	for i, name := range []string{"tokenizer_config.json", "special_tokens_map.json", "generation_config.json", "config.json"} {
		var err error
		if files[i], err = s.object(name); err != nil {
			return nil, err
		}
	}
	tok, special, generation, config := files[0], files[1], files[2], files[3]
	c := &settings{
		tokenizer: tok,
		class:     tokenizerClass(cmp.Or(tok.text("tokenizer_class"), config.text("tokenizer_class"))),
		modelType: cmp.Or(config.text("model_type"), config.object("text_config").text("model_type")),
		bos:       cmp.Or(tok.token("bos_token"), special.token("bos_token")),
		eos:       cmp.Or(tok.token("eos_token"), special.token("eos_token")),
		unk:       cmp.Or(tok.token("unk_token"), special.token("unk_token")),
		pattern:   tok.text("pat_str"),

		maxNewTokens:  generation.count("max_new_tokens"),
		contextLength: contextLength(config),
	}
	c.addBOS, c.addBOSGiven = tok.flag("add_bos_token")
	c.addEOS, _ = tok.flag("add_eos_token")
	c.addPrefixSpace, c.prefix = tok.flag("add_prefix_space")
	c.readSampling(generation)
	c.readAdded(tok)
	if err := s.readAddedFile(c); err != nil {
		return nil, err
	}
	c.readExtra(tok, special)
	if c.contextLength == 0 {
		c.contextLength = tok.count("model_max_length")
	}
	if c.eosIDs = generation.ids("eos_token_id"); len(c.eosIDs) == 0 {
		c.eosIDs = config.ids("eos_token_id")
	}
	if len(c.eosIDs) == 0 {
		c.eosIDs = config.object("text_config").ids("eos_token_id")
	}
	for _, f := range files {
		if *f.fault != nil {
			return nil, *f.fault
		}
	}
	return c, s.readTemplates(c)
}

// object reads a file that the model may have.
func (s *Snapshot) object(name string) (object, error) {
	text, err := s.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return object{at: name, fault: new(error)}, nil
	}
	if err != nil {
		return object{}, fmt.Errorf("%s: %w", name, err)
	}
	return parseObject(name, text)
}

// tokenizerClass is a class without what tells two implementations apart that
// give the same ids.
func tokenizerClass(name string) string {
	const fast = "Fast"
	if len(name) > len(fast) && name[len(name)-len(fast):] == fast {
		return name[:len(name)-len(fast)]
	}
	return name
}

// readAdded reads the tokens that tokenizer_config.json declares by id.
func (c *settings) readAdded(tok object) {
	list := tok.object("added_tokens_decoder")
	for _, key := range slices.Sorted(maps.Keys(list.members)) {
		id, err := strconv.ParseUint(key, 10, 32)
		if err != nil || id >= maxID {
			list.failf(key, "want ids below %d as names", maxID)
			continue
		}
		c.added = append(c.added, list.object(key).addedToken(uint32(id)))
	}
	c.sortAdded()
}

func (c *settings) sortAdded() {
	slices.SortStableFunc(c.added, func(a, b tokenizer.AddedToken) int { return cmp.Compare(a.ID, b.ID) })
}

// readAddedFile reads added_tokens.json, the older form: ids by content. Of two
// tokens with one id the first counts, which is that of tokenizer_config.json.
func (s *Snapshot) readAddedFile(c *settings) error {
	file, err := s.object("added_tokens.json")
	if err != nil {
		return err
	}
	for _, content := range slices.Sorted(maps.Keys(file.members)) {
		ids := file.ids(content)
		if len(ids) != 1 && *file.fault == nil {
			file.want(content, "a token id")
		}
		if len(ids) == 1 {
			c.added = append(c.added, tokenizer.AddedToken{ID: ids[0], Content: content, Normalized: true})
		}
	}
	c.sortAdded()
	return *file.fault
}

// readExtra reads the special tokens that no template asks for.
func (c *settings) readExtra(files ...object) {
	for _, f := range files {
		for _, role := range []string{"pad_token", "cls_token", "sep_token", "mask_token"} {
			c.extra = append(c.extra, f.token(role))
		}
		c.extra = append(c.extra, f.tokens("additional_special_tokens")...)
		if v := f.members["extra_special_tokens"]; v.Kind() == '[' {
			c.extra = append(c.extra, f.tokens("extra_special_tokens")...)
			continue
		}
		named := f.object("extra_special_tokens")
		for _, role := range slices.Sorted(maps.Keys(named.members)) {
			c.extra = append(c.extra, named.token(role))
		}
	}
	for i := range c.added {
		t := &c.added[i]
		t.Special = t.Special || t.Content != "" && slices.Contains(append(c.extra, c.bos, c.eos, c.unk), t.Content)
	}
}

// contextLength returns how many tokens a model was made for; 0 is unknown. A
// sliding window bounds what one layer sees, and not that.
func contextLength(config object) int {
	n := 0
	for _, o := range []object{config, config.object("text_config"), config.object("llm_config"), config.object("language_config")} {
		here := 0
		for _, key := range []string{"max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_length", "max_seq_len", "seq_length", "model_max_length"} {
			if here = o.count(key); here > 0 {
				break
			}
		}
		n = max(n, stretched(o, here))
	}
	return n
}

// stretched is a length with what a scaling of positions makes of it. Most files
// tell the length that results; these kinds tell the factor apart.
func stretched(o object, length int) int {
	rope := o.object("rope_scaling")
	if len(rope.members) == 0 {
		rope = o.object("rope_parameters")
	}
	factor := rope.number("factor")
	if factor <= 1 {
		return length
	}
	switch kind := cmp.Or(rope.text("rope_type"), rope.text("type")); kind {
	case "yarn", "deepseek_yarn":
		if original := rope.count("original_max_position_embeddings"); original > 0 {
			return max(length, scaled(original, factor))
		}
		return scaled(length, factor)
	case "linear", "dynamic":
		return scaled(length, factor)
	}
	return length
}

func scaled(n int, factor float64) int {
	f := float64(n) * factor
	if f >= immense {
		return 0
	}
	return int(f)
}

// toolUse is the name of the template that serves when tools are passed.
const toolUse = "tool_use"

// readTemplates reads the chat templates by name. A template file of its own
// beats the one inside tokenizer_config.json; what the operator gives beats both.
func (s *Snapshot) readTemplates(c *settings) error {
	if s.ChatTemplate != "" {
		c.templates, c.templateFile = map[string]string{"default": s.ChatTemplate}, "chat template"
		return nil
	}
	if err := s.readDefaultTemplate(c); err != nil {
		return err
	}
	const more = "additional_chat_templates/" + toolUse + ".jinja"
	text, err := s.read(more)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", more, err)
	case len(c.templates) == 0:
		c.templates, c.templateFile = map[string]string{}, more
	default:
		c.templateFile += " and " + more
	}
	c.templates[toolUse] = string(text)
	return nil
}

// readDefaultTemplate reads the template that serves if there is no other, and
// those that stand in one file with it.
func (s *Snapshot) readDefaultTemplate(c *settings) error {
	const own = "chat_template.jinja"
	switch text, err := s.read(own); {
	case err == nil:
		c.templates, c.templateFile = map[string]string{"default": string(text)}, own
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %w", own, err)
	}
	file, err := s.object("chat_template.json")
	if err != nil {
		return err
	}
	if !file.has("chat_template") {
		file = c.tokenizer
	}
	if c.templates, err = namedTemplates(file); len(c.templates) > 0 {
		c.templateFile = file.at
	}
	return err
}

func namedTemplates(file object) (map[string]string, error) {
	const key = "chat_template"
	if !file.has(key) {
		return nil, nil
	}
	if text, ok := textOf(file.members[key]); ok {
		return map[string]string{"default": text}, nil
	}
	if file.members[key].Kind() != '[' {
		file.want(key, `a string, or a list of {"name", "template"}`)
		return nil, *file.fault
	}
	named := map[string]string{}
	for i, v := range file.list(key) {
		t := file.element(key, i, v)
		named[t.text("name")] = t.text("template")
	}
	if _, ok := named["default"]; !ok && named[toolUse] == "" && *file.fault == nil {
		file.failf(key, `want one named "default" or %q in the list`, toolUse)
	}
	return named, *file.fault
}
