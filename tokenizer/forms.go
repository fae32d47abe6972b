package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// The normal forms are those of the Hugging Face library, which are not those of
// today: its tables are of Unicode 9, so that what came later is in no way special,
// and it knows no limit to the marks on one letter, where package norm cuts after
// thirty with a U+034F.

var normalForms = map[string]norm.Form{"NFC": norm.NFC, "NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD}

// decomposed is what takes letters and marks apart, so that marks can go.
var decomposed = toForm(norm.NFD)

// graphemeJoiner is what package norm cuts long runs of marks with.
const graphemeJoiner = "\u034f"

// toForm returns text that is in the form already as it is, which most is.
func toForm(form norm.Form) normalizer {
	return func(text string) string {
		if form == norm.NFC && isInert(text) || form.IsNormalString(text) {
			return text
		}
		// What Unicode 9 does not know neither moves, nor lets others move past it,
		// nor joins them: the texts between are normalized one by one.
		var b strings.Builder
		for text != "" {
			i := strings.IndexFunc(text, isLate)
			if i < 0 {
				i = len(text)
			}
			b.WriteString(normalize(form, text[:i]))
			_, n := utf8.DecodeRuneInString(text[i:])
			b.WriteString(text[i : i+n])
			text = text[i+n:]
		}
		return b.String()
	}
}

// normalize returns a text without late characters in the form.
func normalize(form norm.Form, text string) string {
	normal := form.String(text)
	if strings.Count(normal, graphemeJoiner) == strings.Count(text, graphemeJoiner) {
		return normal
	}
	return normalizeMarks(form, text)
}

// normalizeMarks is normalize without a limit to the marks in a row, by the
// algorithm of Unicode: decompose, sort each run of marks by their class, compose.
func normalizeMarks(form norm.Form, text string) string {
	decompose := norm.NFD
	if form == norm.NFKC || form == norm.NFKD {
		decompose = norm.NFKD
	}
	var all []rune
	for _, r := range text {
		all = append(all, []rune(decompose.String(string(r)))...)
	}
	class := func(r rune) uint8 { return norm.NFD.PropertiesString(string(r)).CCC() }
	for i := 0; i < len(all); {
		n := slices.IndexFunc(all[i:], func(r rune) bool { return class(r) == 0 })
		if n < 0 {
			n = len(all) - i
		}
		slices.SortStableFunc(all[i:i+n], func(a, b rune) int { return int(class(a)) - int(class(b)) })
		i += n + 1
	}
	if form == decompose {
		return string(all)
	}

	out := all[:0]
	starter := -1 // where in out the last letter is, or -1
	for _, r := range all {
		c := class(r)
		// A mark reaches its letter unless one of its class or a higher one is
		// between; letters join only neighbours.
		reaches := starter >= 0 && (starter == len(out)-1 || c != 0 && class(out[len(out)-1]) < c)
		if reaches {
			joined := norm.NFC.String(string(out[starter]) + string(r))
			if one, n := utf8.DecodeRuneInString(joined); n == len(joined) {
				out[starter] = one
				continue
			}
		}
		if c == 0 {
			starter = len(out)
		}
		out = append(out, r)
	}
	return string(out)
}

// lateRuns are the characters that have a combining class or take part in a
// decomposition today, and came after Unicode 9.
var lateRuns = [...][2]rune{
	{0x558, 0x558},
	{0x58b, 0x58c},
	{0x5c8, 0x5c9},
	{0x7fd, 0x7fd},
	{0x897, 0x89f},
	{0x8ca, 0x8d3},
	{0x9fe, 0x9fe},
	{0xc3c, 0xc3c},
	{0xd3b, 0xd3c},
	{0xeba, 0xeba},
	{0x1715, 0x1715},
	{0x1abf, 0x1af0},
	{0x1df6, 0x1dfa},
	{0x209d, 0x209f},
	{0x32ff, 0x32ff},
	{0xa7f1, 0xa7f4},
	{0xa82c, 0xa82c},
	{0xab69, 0xab69},
	{0x105c9, 0x105c9},
	{0x105d2, 0x105d2},
	{0x105da, 0x105da},
	{0x105e4, 0x105e4},
	{0x10781, 0x10785},
	{0x10787, 0x107b0},
	{0x107b2, 0x107bf},
	{0x10d24, 0x10d27},
	{0x10d69, 0x10d6d},
	{0x10eab, 0x10eac},
	{0x10ecb, 0x10ecf},
	{0x10ef0, 0x10efb},
	{0x10efd, 0x10eff},
	{0x10f46, 0x10f50},
	{0x10f82, 0x10f85},
	{0x11070, 0x11070},
	{0x1133b, 0x1133b},
	{0x11382, 0x11385},
	{0x1138b, 0x1138b},
	{0x1138e, 0x1138e},
	{0x11390, 0x11391},
	{0x113b8, 0x113b8},
	{0x113bb, 0x113bb},
	{0x113c2, 0x113c2},
	{0x113c5, 0x113c5},
	{0x113c7, 0x113c9},
	{0x113ce, 0x113d0},
	{0x1145e, 0x1145e},
	{0x11839, 0x1183a},
	{0x11930, 0x11930},
	{0x11935, 0x11935},
	{0x11938, 0x11938},
	{0x1193d, 0x1193e},
	{0x11943, 0x11943},
	{0x119e0, 0x119e0},
	{0x11a34, 0x11a34},
	{0x11a47, 0x11a47},
	{0x11a99, 0x11a99},
	{0x11d42, 0x11d42},
	{0x11d44, 0x11d45},
	{0x11d97, 0x11d97},
	{0x11f41, 0x11f42},
	{0x1611e, 0x16129},
	{0x1612f, 0x1612f},
	{0x16d63, 0x16d63},
	{0x16d67, 0x16d6a},
	{0x16ff0, 0x16ff1},
	{0x1b123, 0x1b126},
	{0x1ccd6, 0x1ccf9},
	{0x1d127, 0x1d128},
	{0x1d250, 0x1d252},
	{0x1d25b, 0x1d25c},
	{0x1d25f, 0x1d25f},
	{0x1d280, 0x1d281},
	{0x1d6a6, 0x1d6a6},
	{0x1df95, 0x1df95},
	{0x1dfcd, 0x1dfff},
	{0x1e030, 0x1e06d},
	{0x1e08f, 0x1e08f},
	{0x1e130, 0x1e136},
	{0x1e2ae, 0x1e2ae},
	{0x1e2ec, 0x1e2ef},
	{0x1e4ec, 0x1e4ef},
	{0x1e5ee, 0x1e5ef},
	{0x1e6e3, 0x1e6e3},
	{0x1e6e6, 0x1e6e6},
	{0x1e6ee, 0x1e6ef},
	{0x1e6f5, 0x1e6f5},
	{0x1f16c, 0x1f16c},
	{0x1fbf0, 0x1fbf9},
}

func isLate(r rune) bool {
	if r < lateRuns[0][0] {
		return false
	}
	_, found := slices.BinarySearchFunc(lateRuns[:], r, func(run [2]rune, r rune) int {
		switch {
		case run[1] < r:
			return -1
		case run[0] > r:
			return 1
		}
		return 0
	})
	return found
}
