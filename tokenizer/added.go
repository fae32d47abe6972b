package tokenizer

import (
	"iter"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// AddedToken is a token that is cut out of the text before the model sees it.
type AddedToken struct {
	ID         uint32 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // only where no word character adjoins
	LStrip     bool   `json:"lstrip"`      // takes the whitespace before it along
	RStrip     bool   `json:"rstrip"`      // takes the whitespace after it along
	Normalized bool   `json:"normalized"`  // sought after normalization
	Special    bool   `json:"special"`     // dropped by decoding with skipSpecial
	// Structure says that the token is a prompt's structure, which text from
	// outside must not be able to forge: [Tokenizer.AppendLiteral] does not yield
	// it. Every special token is, see [Tokenizer.AddedTokens] for the others.
	Structure bool `json:"-"`
}

// isStructure tells whether the token is structure by what is known of it alone;
// own says that the model's own vocabulary has its content.
func (a *AddedToken) isStructure(own bool) bool {
	if a.Special || strings.HasPrefix(a.Content, "<|") || strings.HasPrefix(a.Content, "<｜") {
		return true
	}
	return !own && a.isMark()
}

// isMark tells whether the content is a name between signs, as <think> and [INST]
// are, and words, blanks and rows of signs are not.
func (a *AddedToken) isMark() bool {
	first, _ := utf8.DecodeRuneInString(a.Content)
	last, _ := utf8.DecodeLastRuneInString(a.Content)
	return isSign(first) && isSign(last) && strings.ContainsFunc(a.Content, isName)
}

func isSign(r rune) bool { return classOf(r)&ps != 0 }

func isName(r rune) bool { return classOf(r)&(letter|nu) != 0 }

// isBlank tells whether r is whitespace, or what vocabularies of SentencePiece
// write for a space.
func isBlank(r rune) bool { return unicode.IsSpace(r) || string(r) == blank }

// matcher finds added tokens in text: leftmost first, then longest. It is a trie
// over the bytes of their contents.
type matcher struct {
	tokens []AddedToken
	nodes  []trieNode
	start  [256]bool // bytes that begin a content
	only   int       // the one byte that begins all contents, or -1
}

type trieNode struct {
	edges []trieEdge // by byte
	token int        // index of the token that ends here, or -1
}

type trieEdge struct {
	b    byte
	next int
}

// newMatcher seeks each token by the content that as returns for it.
func newMatcher(tokens []AddedToken, as func(AddedToken) string) *matcher {
	m := &matcher{tokens: tokens, nodes: []trieNode{{token: -1}}, only: -1}
	for i, a := range tokens {
		content := as(a)
		if content == "" {
			continue
		}
		m.start[content[0]] = true
		node := 0
		for _, b := range []byte(content) {
			node = m.child(node, b)
		}
		m.nodes[node].token = i
	}
	first := slices.Index(m.start[:], true)
	if first >= 0 && !slices.Contains(m.start[first+1:], true) {
		m.only = first
	}
	return m
}

// child returns the node below node that b leads to, and makes it if need be.
func (m *matcher) child(node int, b byte) int {
	edges := m.nodes[node].edges
	at, found := slices.BinarySearchFunc(edges, b, func(e trieEdge, b byte) int { return int(e.b) - int(b) })
	if found {
		return edges[at].next
	}
	next := len(m.nodes)
	m.nodes[node].edges = slices.Insert(edges, at, trieEdge{b, next})
	m.nodes = append(m.nodes, trieNode{token: -1})
	return next
}

// match returns the longest token whose content begins at text[i:] and its end.
func (m *matcher) match(text string, i int) (token *AddedToken, end int) {
	node := &m.nodes[0]
	for j := i; j < len(text); j++ {
		at, found := slices.BinarySearchFunc(node.edges, text[j], func(e trieEdge, b byte) int { return int(e.b) - int(b) })
		if !found {
			break
		}
		node = &m.nodes[node.edges[at].next]
		if node.token >= 0 {
			token, end = &m.tokens[node.token], j+1
		}
	}
	return token, end
}

// find returns the first token in text[i:] and where it lies; nil if there is
// none.
func (m *matcher) find(text string, i int) (token *AddedToken, start, end int) {
	for ; i < len(text); i++ {
		if m.only >= 0 {
			skip := strings.IndexByte(text[i:], byte(m.only))
			if skip < 0 {
				break
			}
			i += skip
		} else if !m.start[text[i]] {
			continue
		}
		if token, end = m.match(text, i); token != nil {
			return token, i, end
		}
	}
	return nil, 0, 0
}

// pieces cuts text at the added tokens. It yields each with its token, and what
// lies between them, never empty, with nil.
func (m *matcher) pieces(text string) iter.Seq2[string, *AddedToken] {
	return func(yield func(string, *AddedToken) bool) {
		done, next := 0, 0
		for len(m.tokens) > 0 {
			token, start, end := m.find(text, next)
			if token == nil {
				break
			}
			next = end
			if token.SingleWord && (wordBefore(text[:start]) || wordAfter(text[end:])) {
				continue
			}
			// Whitespace between two tokens belongs to the first that takes it.
			start, end = max(start, done), max(end, done)
			if token.LStrip {
				start = done + len(strings.TrimRightFunc(text[done:start], unicode.IsSpace))
			}
			if token.RStrip {
				end = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
			}
			if start > done && !yield(text[done:start], nil) {
				return
			}
			if !yield(text[start:end], token) {
				return
			}
			done = end
		}
		if done < len(text) {
			yield(text[done:], nil)
		}
	}
}

func wordBefore(text string) bool {
	r, _ := utf8.DecodeLastRuneInString(text)
	return isWord(r)
}

func wordAfter(text string) bool {
	r, _ := utf8.DecodeRuneInString(text)
	return isWord(r)
}

// isWord is \w of the reference implementation's regular expressions.
func isWord(r rune) bool { return unicode.Is(wordChars, r) }
