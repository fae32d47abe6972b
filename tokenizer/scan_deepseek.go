package tokenizer

import "unicode/utf8"

// scanNumbers cuts out one to three numbers.
func scanNumbers(text string, i int) int {
	if c, n := classAt(text, i); c&nu == 0 {
		return nu.runWithout(text, i+n)
	}
	return numbers(text, i, 3)
}

// scanKana cuts out runs of Chinese and Japanese characters.
func scanKana(text string, i int) int {
	r, n := utf8.DecodeRuneInString(text[i:])
	inside := isKana(r)
	for i += n; i < len(text); i += n {
		if text[i] < utf8.RuneSelf {
			if inside {
				break
			}
			n = 1
			continue
		}
		if r, n = utf8.DecodeRuneInString(text[i:]); isKana(r) != inside {
			break
		}
	}
	return i
}

// isKana tells whether r is one of the ideographs of Unicode 1.1, Hiragana or
// Katakana.
func isKana(r rune) bool {
	return r >= 0x4e00 && r <= 0x9fa5 || r >= 0x3040 && r <= 0x30ff
}

// scanDeepSeek is the pattern for what is neither number nor Chinese.
func scanDeepSeek(text string, i int) int {
	if end := deepSeekMatch(text, i); end > i {
		return end
	}
	for i < len(text) {
		_, n := classAt(text, i)
		i += n
		if i < len(text) && deepSeekMatch(text, i) > i {
			break
		}
	}
	return i
}

// deepSeekMatch returns i if no alternative matches there.
func deepSeekMatch(text string, i int) int {
	c, n := classAt(text, i)
	// All punctuation and symbols of ASCII are in the first alternative.
	if text[i] < utf8.RuneSelf && c&ps != 0 {
		if end := asciiLetters(text, i+1); end > i+1 {
			return end
		}
	}
	const word = letter | mk
	if c&word != 0 {
		return word.run(text, i+n)
	}
	if c&(nl|ps) == 0 {
		if end := word.run(text, i+n); end > i+n {
			return end
		}
	}
	j := i
	if text[i] == ' ' {
		j++
	}
	if end := ps.run(text, j); end > j {
		return newlines(text, end, false)
	}
	return spaces(text, i)
}

func asciiLetters(text string, i int) int {
	for i < len(text) && (text[i]|0x20 >= 'a' && text[i]|0x20 <= 'z') {
		i++
	}
	return i
}
