package main

import "strings"

// withS returns the plural of a noun or the third person of a verb.
func withS(word string) string {
	switch {
	case word == "be":
		return "is"
	case word == "have":
		return "has"
	case endsInY(word):
		return word[:len(word)-1] + "ies"
	}
	for _, hiss := range []string{"s", "x", "z", "ch", "sh", "o"} {
		if strings.HasSuffix(word, hiss) {
			return word + "es"
		}
	}
	return word + "s"
}

// withSuffix adds ing or ed.
func withSuffix(verb, suffix string) string {
	switch {
	case suffix == "ed" && endsInY(verb):
		return verb[:len(verb)-1] + "ied"
	case strings.HasSuffix(verb, "ie") && suffix == "ing":
		return verb[:len(verb)-2] + "ying"
	case strings.HasSuffix(verb, "ee") && suffix == "ing" || verb == "be":
		return verb + suffix
	case strings.HasSuffix(verb, "e"):
		return verb[:len(verb)-1] + suffix
	case doubles(verb):
		return verb + verb[len(verb)-1:] + suffix
	}
	return verb + suffix
}

// adverb returns the adverb of an adjective that has a regular one.
func adverb(adjective string) string {
	switch {
	case endsInY(adjective):
		return adjective[:len(adjective)-1] + "ily"
	case strings.HasSuffix(adjective, "ic"):
		return adjective + "ally"
	case strings.HasSuffix(adjective, "ble"), strings.HasSuffix(adjective, "ple"):
		return adjective[:len(adjective)-1] + "y"
	case strings.HasSuffix(adjective, "ly"):
		return adjective
	case strings.HasSuffix(adjective, "ll"):
		return adjective + "y"
	}
	return adjective + "ly"
}

func vowel(b byte) bool { return strings.IndexByte("aeiou", b) >= 0 }

func endsInY(word string) bool {
	n := len(word)
	return n > 2 && word[n-1] == 'y' && !vowel(word[n-2])
}

// doubles tells whether a verb doubles its last consonant, as stop does: one
// syllable that ends in a single consonant after a single vowel, and a few more.
func doubles(verb string) bool {
	switch verb {
	case "begin", "commit", "forget", "debug", "admit":
		return true
	}
	n := len(verb)
	if n < 3 || vowel(verb[n-1]) || strings.IndexByte("wxy", verb[n-1]) >= 0 || !vowel(verb[n-2]) || vowel(verb[n-3]) {
		return false
	}
	return strings.IndexFunc(verb[:n-2], func(r rune) bool { return vowel(byte(r)) }) < 0
}
