package tokenizer

// scanner finds where the piece ends that begins at text[i:], for i < len(text).
// The well-known split patterns never look behind i and leave no character out,
// so a scanner needs no state and its pieces join to the text.
type scanner func(text string, i int) int

func (s scanner) split(dst []string, text string) []string {
	for i := 0; i < len(text); {
		end := s(text, i)
		dst = append(dst, text[i:end])
		i = end
	}
	return dst
}

// The split patterns that real models share, as their files spell them. A
// regular expression engine with look-ahead reads about 5 MB/s of them; these
// scanners do the same at more than 100. Those of models that come with a
// vocabulary alone, which does not hold the pattern, are for those who load it.
const (
	patternGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	PatternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	PatternQwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	PatternQwen35 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	PatternO200k  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	PatternKimi   = `[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	PatternTekken = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

var knownPatterns = map[string]scanner{
	patternGPT2:   scanGPT2,
	PatternLlama3: func(text string, i int) int { return scanCL100k(text, i, 3, letter) },
	PatternQwen2:  func(text string, i int) int { return scanCL100k(text, i, 1, letter) },
	PatternQwen35: func(text string, i int) int { return scanCL100k(text, i, 1, letter|mk) },
	PatternO200k:  func(text string, i int) int { return scanO200k(text, i, 3, true) },
	PatternKimi:   scanKimi,
	PatternTekken: func(text string, i int) int { return scanO200k(text, i, 1, false) },
}

// deepSeekPatterns are those by which DeepSeek V3 and R1 cut a text in turn:
// numbers, Chinese and Japanese, and all else.
var deepSeekPatterns = [...]string{
	`\p{N}{1,3}`,
	"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
	"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
}

// isolatedPatterns are known too, but leave characters out, so that their pieces
// are those of the behavior Isolated alone: what lies between two matches is a
// piece.
var isolatedPatterns = map[string]scanner{
	deepSeekPatterns[0]: scanNumbers,
	deepSeekPatterns[1]: scanKana,
	deepSeekPatterns[2]: scanDeepSeek,
}

func scanGPT2(text string, i int) int {
	if end := contraction(text, i, false); end > i {
		return end
	}
	j := i
	if text[i] == ' ' && i+1 < len(text) {
		j++
	}
	switch c, n := classAt(text, j); {
	case c&letter != 0:
		return letter.run(text, j+n)
	case c&nu != 0:
		return nu.run(text, j+n)
	case c&sp == 0:
		return (sp | letter | nu).runWithout(text, j+n)
	}
	end, last, _ := whitespace(text, i)
	return beforeWord(text, i, last, end)
}

// scanCL100k is the pattern of cl100k and its heirs, which differ in how many
// digits make a piece, and in what words are made of.
func scanCL100k(text string, i, digits int, word class) int {
	if end := contraction(text, i, true); end > i {
		return end
	}
	c, n := classAt(text, i)
	switch {
	case c&word != 0:
		return word.run(text, i+n)
	case c&nu != 0:
		return numbers(text, i, digits)
	case c&nl == 0 && i+n < len(text):
		if next, m := classAt(text, i+n); next&word != 0 {
			return word.run(text, i+n+m)
		}
	}
	if end := symbols(text, i, word); end > i {
		return newlines(text, end, false)
	}
	return spaces(text, i)
}

// scanO200k is the pattern of o200k, which also cuts words where the case
// changes, and of Tekken, which has one digit a piece and no contractions.
func scanO200k(text string, i, digits int, contractions bool) int {
	c, n := classAt(text, i)
	if end := o200kWord(text, i, c, n, 0); end > i {
		if contractions {
			return contraction(text, end, true)
		}
		return end
	}
	if c&nu != 0 {
		return numbers(text, i, digits)
	}
	if end := symbols(text, i, letter); end > i {
		return newlines(text, end, true)
	}
	return spaces(text, i)
}

// scanKimi is the pattern of o200k with runs of Han cut out of words.
func scanKimi(text string, i int) int {
	c, n := classAt(text, i)
	if c&han != 0 {
		return han.run(text, i+n)
	}
	if end := o200kWord(text, i, c, n, han); end > i {
		return contraction(text, end, true)
	}
	if c&nu != 0 {
		return numbers(text, i, 3)
	}
	if end := symbols(text, i, letter); end > i {
		return newlines(text, end, false)
	}
	return spaces(text, i)
}

// o200kWord matches the two word alternatives at text[i:], where a character of
// class c and length n stands, and returns i if neither does. A word is an upper
// run and a lower one, the second alternative being for those without a lower
// run; before both may stand one character that is no letter, number or newline.
// A character with a property in stop is part of no run.
func o200kWord(text string, i int, c class, n int, stop class) int {
	prefixed := i + n
	if c&(letter|nu|nl) != 0 {
		prefixed = i
	}
	if end := mixedCase(text, prefixed, stop); end > prefixed {
		return end
	}
	// Without the prefix a word can begin here only if the character is a mark:
	// a prefix too, and part of a word.
	if c&mk != 0 {
		return mixedCase(text, i, stop)
	}
	if end := (lu | lo | mk).runUntil(text, prefixed, stop); end > prefixed {
		return end
	}
	return i
}

// mixedCase matches an upper run and a lower run of at least one character.
// Characters without case belong to both, so a run of them that no lower-case
// letter follows is given back, up to its last such character. It returns i if
// there is no match.
func mixedCase(text string, i int, stop class) int {
	both := i // end of the last character in the upper run that has no case
	end := i
	for end < len(text) {
		c, n := classAt(text, end)
		if c&(lu|lo|mk) == 0 || c&stop != 0 {
			break
		}
		end += n
		if c&lu == 0 {
			both = end
		}
	}
	if lower := (ll | lo | mk).runUntil(text, end, stop); lower > end {
		return lower
	}
	return both
}

// contraction returns the end of 's 't 're 've 'm 'll 'd at text[i:], or i. With
// fold case does not matter, which makes the long s (U+017F) an s.
func contraction(text string, i int, fold bool) int {
	if i+1 >= len(text) || text[i] != '\'' {
		return i
	}
	var lower byte
	if fold {
		lower = 'a' - 'A'
	}
	var second byte
	switch text[i+1] | lower {
	case 's', 't', 'm', 'd':
		return i + 2
	case 'r', 'v':
		second = 'e'
	case 'l':
		second = 'l'
	default:
		if fold && len(text) > i+2 && text[i+1:i+3] == "ſ" {
			return i + 3
		}
		return i
	}
	if i+2 < len(text) && text[i+2]|lower == second {
		return i + 3
	}
	return i
}

func numbers(text string, i, limit int) int {
	for ; limit > 0 && i < len(text); limit-- {
		c, n := classAt(text, i)
		if c&nu == 0 {
			break
		}
		i += n
	}
	return i
}

// symbols matches an optional space and then characters that are no space,
// word or number. It returns i if there are none.
func symbols(text string, i int, word class) int {
	j := i
	if text[i] == ' ' {
		j++
	}
	if end := (sp | word | nu).runWithout(text, j); end > j {
		return end
	}
	return i
}

func newlines(text string, i int, slash bool) int {
	for i < len(text) && (text[i] == '\n' || text[i] == '\r' || slash && text[i] == '/') {
		i++
	}
	return i
}

// spaces cuts a run of whitespace after its last newline, or else leaves its
// last character to the word that follows.
func spaces(text string, i int) int {
	end, last, newline := whitespace(text, i)
	if newline > i {
		return newline
	}
	return beforeWord(text, i, last, end)
}

// whitespace returns the end of the whitespace at text[i:], where its last
// character begins, and where its last CR or LF ends (i if it has none).
func whitespace(text string, i int) (end, last, newline int) {
	end, last, newline = i, i, i
	for end < len(text) {
		c, n := classAt(text, end)
		if c&sp == 0 {
			break
		}
		last = end
		end += n
		if c&nl != 0 {
			newline = end
		}
	}
	return end, last, newline
}

// beforeWord is \s+(?!\S)|\s+ on a run of whitespace from i to end.
func beforeWord(text string, i, last, end int) int {
	if end == len(text) || last == i {
		return end
	}
	return last
}
