package tokenizer

import (
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// loadBert reads the normalizer of BERT, which is four in one.
func loadBert(path string, v jsontext.Value) ([]normalizer, error) {
	f := struct {
		CleanText    bool  `json:"clean_text"`
		Chinese      bool  `json:"handle_chinese_chars"`
		StripAccents *bool `json:"strip_accents"`
		Lowercase    bool  `json:"lowercase"`
	}{true, true, nil, true}
	if err := read(path, v, &f); err != nil {
		return nil, err
	}
	var all []normalizer
	if f.CleanText {
		all = append(all, cleanText)
	}
	if f.Chinese {
		all = append(all, spaceChinese)
	}
	if f.StripAccents != nil && *f.StripAccents || f.StripAccents == nil && f.Lowercase {
		all = append(all, stripBertAccents)
	}
	if f.Lowercase {
		all = append(all, lowercase)
	}
	return all, nil
}

// cleanText drops control characters and makes all whitespace spaces.
func cleanText(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == 0 || r == unicode.ReplacementChar:
			return -1
		case classOf(r)&sp != 0 && r != '\v' && r != '\f' && r != '\u0085':
			return ' '
		case unicode.In(r, unicode.Cc, unicode.Co):
			return -1
		// The format characters of Unicode 8.0.
		case unicode.Is(unicode.Cf, r) && !(r == 0x890 || r == 0x891 || r == 0x8e2 || r == 0x110cd || r >= 0x13430 && r <= 0x1343f):
			return -1
		}
		return r
	}, text)
}

// spaceChinese puts spaces around ideographs.
func spaceChinese(text string) string {
	var b strings.Builder
	for _, r := range text {
		if isChinese(r) {
			b.WriteByte(' ')
			b.WriteRune(r)
			b.WriteByte(' ')
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func isChinese(r rune) bool {
	return r >= 0x4e00 && r <= 0x9fff || r >= 0x3400 && r <= 0x4dbf || r >= 0x20000 && r <= 0x2a6df ||
		r >= 0x2a700 && r <= 0x2b73f || r >= 0x2b740 && r <= 0x2b81f || r >= 0x2b920 && r <= 0x2ceaf ||
		r >= 0xf900 && r <= 0xfaff || r >= 0x2f800 && r <= 0x2fa1f
}

func stripBertAccents(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(bertAccents, r) {
			return -1
		}
		return r
	}, decomposed(text))
}

// splitBert cuts at whitespace, which it drops, and around punctuation.
type splitBert struct{}

func (splitBert) split(dst []string, text string) []string {
	start := 0
	cut := func(end int) {
		if end > start {
			dst = append(dst, text[start:end])
		}
		start = end
	}
	for i, r := range text {
		switch n := len(string(r)); {
		case classOf(r)&sp != 0:
			cut(i)
			start = i + n
		case unicode.Is(bertPunctuation, r):
			cut(i)
			cut(i + n)
		}
	}
	cut(len(text))
	return dst
}

// bertSpaces are taken out by the cleanup of the WordPiece decoder, in turn.
var bertSpaces = [][2]string{
	{" .", "."},
	{" ?", "?"},
	{" !", "!"},
	{" ,", ","},
	{" ' ", "'"},
	{" n't", "n't"},
	{" 'm", "'m"},
	{" do not", " don't"},
	{" 's", "'s"},
	{" 've", "'ve"},
	{" 're", "'re"},
}

// loadWordPiece reads the decoder of BERT, which joins the parts of a word.
func (c *chain) loadWordPiece(path string, v jsontext.Value) error {
	f := struct {
		Prefix  string `json:"prefix"`
		Cleanup bool   `json:"cleanup"`
	}{"##", true}
	if err := read(path, v, &f); err != nil {
		return err
	}
	c.varies = true
	c.add(func(token string, first bool) string {
		if !first {
			if part, ok := strings.CutPrefix(token, f.Prefix); ok {
				token = part
			} else {
				token = " " + token
			}
		}
		if f.Cleanup {
			token = cleanup(token)
		}
		return token
	})
	return nil
}

// cleanup takes out the spaces that joining put before punctuation.
func cleanup(token string) string {
	for _, s := range bertSpaces {
		token = strings.ReplaceAll(token, s[0], s[1])
	}
	return token
}

// loadBertProcessor reads the post-processor of BERT or RoBERTa, which puts one
// token before the text and one behind it.
func loadBertProcessor(path string, v jsontext.Value) (before, after []uint32, err error) {
	var f struct {
		Sep bertToken `json:"sep"`
		Cls bertToken `json:"cls"`
	}
	if err := read(path, v, &f); err != nil {
		return nil, nil, err
	}
	return []uint32{f.Cls.id}, []uint32{f.Sep.id}, nil
}

// bertToken is written as [content, id].
type bertToken struct{ id uint32 }

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (t *bertToken) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	value, err := dec.ReadValue()
	if err != nil {
		return err
	}
	var pair [2]jsontext.Value
	if err := json.Unmarshal(value, &pair); err != nil {
		return err
	}
	return json.Unmarshal(pair[1], &t.id)
}
