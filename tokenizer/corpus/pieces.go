package corpus

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// corners are texts at which tokenizers have differed.
var corners = []string{
	"", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u0085", "\u2028", "\u200b", "\ufeff", "\x00", "\x7f", "\ufffd", "\ufffe", "\uffff",
	"a", "é", "e\u0301", "ß", "ẞ", "İ", "ı", "ſ", "\u212a", "ﬁ", "ǅ", "ª", "ʰ", "½", "²", "Ⅷ", "①", "٣", "߃", "१", "ｱ", "㍿", "ﷺ", "\u1100\u1161\u11a8", "각",
	"Hello, world!", "hello   world", " hello", "hello ", "\t\tfoo()", "a\n\n\nb", "a \r\n b", " \n ", "x\t\ty", "\n\n  \n",
	"don't can't I'll we've they're he'd 'twas", "DON'T CAN'T I'LL WE'VE", "'S'T'RE'VE'M'LL'D 'ſ '\u212a", "don’t", "''''", "'s's's",
	"camelCaseWordsAndHTTPServer2URLs", "snake_case_name", "SCREAMING_SNAKE", "kebab-case", "a.b.c", "x1y2z3", "ABCdef", "ÉcoleÀ",
	"3.14159", "1,000,000", "0x1F", "1e-9", "2024-02-29T23:59:60Z", "٣٤٥٦", "१२३४५", "123456789012345678901", "1 2 3", "v1.2.3",
	"/*", "*/", "//", "://", "!=", "===", "->", "=>", "<=>", "...", "…", "!!!", "???", "--", "———", "#!/bin/sh", "$HOME", "@user", "a@b.c", "C++", "C#",
	"<|im_end|>", "<|endoftext|>", "<s>", "</s>", "[INST]", "<unk>", "<0x0A>", "[CLS]", "[MASK]", "##ing", "▁", "▁▁a", "a▁b", " ▁ ", "Ġ", "Ċ", "<think>", "</think>", "<tool_call>",
	">▁</", "> </", "><", "-▁-",
	"👍", "👍🏽", "👨‍👩‍👧‍👦", "🇩🇪🇫🇷", "1️⃣", "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f", "❤️", "☺︎", "\u200d", "\ufe0f",
	"你好", "你好 world", "日本語とEnglish", "한국어", "ไทย", "क्षि", "ক্ষ", "العربية", "עברית", "\u202eabc\u202c", "i\u0307", "\u0344", "\u0958", "\u2126", "\ufb1d", "\U0001d15e",
	"\U00013f74", "\U0001396d", "\U000e0001", "\U000f0000", "\U0010ffff", "\ue000", "\U00020000", "\U0001f9d1\u200d\U0001f680",
}

// code returns a few lines of some language.
func code(rng *rand.Rand) string {
	name := func() string {
		parts := []string{"get", "block", "Cache", "HTTP", "url", "Index", "token", "count", "id", "x", "tmp", "Reader", "λ", "größe", "_", "2"}
		var b strings.Builder
		for range 1 + rng.IntN(3) {
			b.WriteString(parts[rng.IntN(len(parts))])
		}
		return b.String()
	}
	n := rng.IntN(100000)
	indent := strings.Repeat([]string{" ", "\t", "  ", "    "}[rng.IntN(4)], rng.IntN(5))
	switch rng.IntN(12) {
	case 0:
		return fmt.Sprintf("%sfunc (s *%s) %s(ctx context.Context, n int) ([]byte, error) {\n%s\tif n < %d {\n%s\t\treturn nil, fmt.Errorf(\"%%s: %%w\", s.%s, err)\n%s\t}\n}\n\n", indent, name(), name(), indent, n, indent, name(), indent)
	case 1:
		return fmt.Sprintf("%sdef %s(self, %s=None, **kwargs):\n%s    \"\"\"Counts %s.\"\"\"\n%s    return [x ** %d for x in self.%s if x != '%s']\n", indent, name(), name(), indent, name(), indent, n%9, name(), name())
	case 2:
		return fmt.Sprintf("const %s = async ({ %s, ...rest }) => await fetch(`/api/${%s}?q=%d`).then(r => r.json());\n", name(), name(), name(), n)
	case 3:
		return fmt.Sprintf("#include <%s.h>\r\n#define %s(x) ((x) << %d)\r\nstatic inline uint%d_t *%s(void) { return &%s[0x%X]; } /* %s */\r\n", name(), name(), n%32, 8<<(n%4), name(), name(), n, name())
	case 4:
		return fmt.Sprintf("<div class=\"%s-%d\" data-x='%s'>\n  <!-- %s --><br/>&nbsp;&#%d;\n</div>\n", name(), n, name(), name(), n)
	case 5:
		return fmt.Sprintf("{\"%s\":{\"%s\":[%d,-%d.5e%d,null,true],\"s\":\"\\u%04x\\n\\\"%s\\\"\"}}", name(), name(), n, n, n%300, n%0xd000, name())
	case 6:
		return fmt.Sprintf("SELECT %s, COUNT(*) FROM %s AS t WHERE t.%s >= %d GROUP BY 1 ORDER BY 2 DESC;\n", name(), name(), name(), n)
	case 7:
		return fmt.Sprintf("for f in \"${%s[@]}\"; do [[ -f $f ]] && sed -E 's/%s/\\1/g' <\"$f\" | awk '{print $%d}' >>%s.log 2>&1; done\n", name(), name(), n%9, name())
	case 8:
		return fmt.Sprintf("%s:\n  - %s: %d # %s\n    %s: \"~/%s\"\n", name(), name(), n, name(), name(), name())
	case 9:
		return fmt.Sprintf("## %s\n\n* **%s** — see [%s](https://example.org/%s?a=%d#b)\n\n```go\nx := %d\n```\n\n| a | b |\n|---|--:|\n", name(), name(), name(), name(), n, n)
	case 10:
		return fmt.Sprintf("impl<'a, T: %s + 'static> %s for &'a mut T { fn %s(&self) -> Result<(), Box<dyn Error>> { Ok(()) } } // %s\n", name(), name(), name(), name())
	}
	return fmt.Sprintf("@@ -%d,%d +%d,%d @@ %s\n-\told := %s\n+\tnew := %s\n \n", n, n%40, n+1, n%50, name(), name(), name())
}

// emoji returns a pictograph, alone or joined, coloured, as a flag or a keycap.
func emoji(rng *rand.Rand) string {
	pictograph := func() rune {
		return []rune{
			0x1f600 + rng.Int32N(0x50), 0x1f300 + rng.Int32N(0x1e0), 0x1f680 + rng.Int32N(0x46), 0x1f900 + rng.Int32N(0x100), 0x2600 + rng.Int32N(0x100), 0x1f466 + rng.Int32N(4),
		}[rng.IntN(6)]
	}
	skin := []string{"", "", "\U0001f3fb", "\U0001f3fd", "\U0001f3ff", "\ufe0f", "\ufe0e"}
	one := func() string { return string(pictograph()) + skin[rng.IntN(len(skin))] }
	switch rng.IntN(7) {
	case 0:
		return one() + "\u200d" + one()
	case 1:
		return one() + "\u200d" + one() + "\u200d" + one() + "\u200d" + one()
	case 2:
		return string([]rune{0x1f1e6 + rng.Int32N(26), 0x1f1e6 + rng.Int32N(26)})
	case 3:
		return string("0123456789#*"[rng.IntN(12)]) + "\ufe0f\u20e3"
	case 4:
		return "\U0001f3f4" + string([]rune{0xe0061 + rng.Int32N(26), 0xe0061 + rng.Int32N(26), 0xe007f})
	case 5:
		return strings.Repeat(string(pictograph()), 1+rng.IntN(6)) + " "
	}
	return one()
}

// marks returns letters under combining marks, in any order and number.
func marks(rng *rand.Rand) string {
	var b strings.Builder
	switch rng.IntN(6) {
	case 0:
		for range 1 + rng.IntN(4) {
			b.WriteRune(0x1100 + rng.Int32N(19))
			b.WriteRune(0x1161 + rng.Int32N(21))
			if rng.IntN(2) == 0 {
				b.WriteRune(0x11a8 + rng.Int32N(27))
			}
		}
	case 1:
		for range 1 + rng.IntN(4) {
			b.WriteRune(0x0915 + rng.Int32N(37))
			b.WriteRune([]rune{0x094d, 0x093c, 0x093f, 0x0947, 0x0902, 0x0951, 0x200d, 0x200c}[rng.IntN(8)])
		}
	case 2:
		b.WriteRune(0x05d0 + rng.Int32N(27))
		for range rng.IntN(4) {
			b.WriteRune(0x05b0 + rng.Int32N(14))
		}
	case 3:
		b.WriteRune(0x0627 + rng.Int32N(20))
		for range rng.IntN(4) {
			b.WriteRune(0x064b + rng.Int32N(20))
		}
	default:
		base := []rune("aeiouAEIOUncszyrlkgdth ıſÅﬀǆ")
		b.WriteRune(base[rng.IntN(len(base))])
		for range rng.IntN(5) {
			b.WriteRune(0x0300 + rng.Int32N(0x70))
		}
	}
	if rng.IntN(4) == 0 {
		b.WriteByte(' ')
	}
	return b.String()
}

// controls returns a character that is not seen, with a word at times.
func controls(rng *rand.Rand) string {
	invisible := []rune("\u00ad\u034f\u061c\u115f\u17b4\u180e\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2061\u2066\u2067\u2069\u3164\ufeff\ufff9\ufffb\ufffc\ufffd\ufdd0\ufffe\uffff\U0001d173\U000e0001\U000e0100")
	switch rng.IntN(6) {
	case 0:
		return string(rng.Int32N(0x20))
	case 1:
		return string(0x7f + rng.Int32N(0x21))
	case 2:
		return string(0xe000 + rng.Int32N(0x1900))
	case 3:
		return []string{"word", " text", "Line", "42", "\x1b[31m", "\x1b[0m", "\x00\x00"}[rng.IntN(7)]
	}
	return string(invisible[rng.IntN(len(invisible))])
}

// blanks returns a long run of one blank, or a mixed one, and what follows it.
func blanks(rng *rand.Rand) string {
	all := []string{" ", " ", " ", "\t", "\u00a0", "\u3000", "\u2003", "\u2009", "\u202f", "\u205f", "\u1680", "\v", "\f"}
	var b strings.Builder
	if rng.IntN(3) > 0 {
		b.WriteString(strings.Repeat(all[rng.IntN(len(all))], 1<<rng.IntN(10)+rng.IntN(9)))
	} else {
		for range 1 + rng.IntN(30) {
			b.WriteString(all[rng.IntN(len(all))])
		}
	}
	b.WriteString([]string{"", "", "x", "the", "7", ".", "\n", "é", "你", "return", "//"}[rng.IntN(11)])
	return b.String()
}

// lines returns ends of lines of all kinds, with blanks and words between.
func lines(rng *rand.Rand) string {
	ends := []string{"\n", "\r\n", "\r", "\n\n", "\r\n\r\n", "\n\r", "\u0085", "\u2028", "\u2029", " \n", "\t\r\n", "\n ", "\n    ", "\n\t\t"}
	words := []string{"", "", "end", ".", "end.", "}", "});", "*/", "Ω", "你", "1", " ", "- item", "> quote", "a/b/", "!!/"}
	return words[rng.IntN(len(words))] + strings.Repeat(ends[rng.IntN(len(ends))], 1+rng.IntN(4))
}

// digits returns a number.
func digits(rng *rand.Rand) string {
	zeros := []rune("٠۰߀०০੦૦୦௦౦೦൦෦๐໐༠၀០᠐᧐᭐᮰꘠꣐꤀꩐꯰０𐒠𑁦𑃰𝟎𝟘𞥐🯰")
	others := []rune("½¼¾⅓⅛²³¹₀₉①⑳⒈ⅠⅫⅷ㊀㋀〇一二三百千万億٪‰𐄇𒐕")
	number := func(zero rune, n int) string {
		var b strings.Builder
		for range n {
			b.WriteRune(zero + rng.Int32N(10))
		}
		return b.String()
	}
	between := []string{" ", "", ",", "\n", "-", "/", ":", " x "}[rng.IntN(8)]
	switch rng.IntN(7) {
	case 0:
		return number(zeros[rng.IntN(len(zeros))], 1+rng.IntN(9)) + between
	case 1:
		return string(others[rng.IntN(len(others))]) + between
	case 2:
		return number('0', 1+rng.IntN(3)) + "." + number('0', 1+rng.IntN(18)) + "e-" + number('0', 2) + between
	case 3:
		return "+49 (" + number('0', 3) + ") " + number('0', 7) + between
	case 4:
		return number('0', 20+rng.IntN(200)) + between
	case 5:
		return number('1', 1) + "," + number('0', 3) + "," + number('0', 3) + "." + number('0', 2) + "€" + between
	}
	return number('0', 1+rng.IntN(8)) + between
}

// noise returns a character from anywhere in Unicode, assigned or not: what came
// later than the tables of a library is where tokenizers part.
func noise(rng *rand.Rand) string {
	for {
		limit := []int32{0x80, 0x250, 0x800, 0x3000, 0x10000, 0x20000, 0x20000, 0x110000}[rng.IntN(8)]
		if c := rng.Int32N(limit); c < 0xd800 || c >= 0xe000 {
			return string(c)
		}
	}
}

// broken returns random bytes in which all that is no UTF-8 became U+FFFD, as
// it does when a server reads them as text.
func broken(rng *rand.Rand) string {
	bytes := make([]byte, 1+rng.IntN(24))
	for i := range bytes {
		bytes[i] = byte(rng.Uint32())
	}
	return string([]rune(string(bytes)))
}
