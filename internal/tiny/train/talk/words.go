package talk

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/dynago/dynago/internal/demo/train/corpus"
)

func read(topic string) []string {
	text, err := corpus.Files.ReadFile(topic + ".txt")
	if err != nil {
		panic(err) // it is embedded
	}
	return strings.Fields(string(text))
}

var (
	nouns      = longer(read("nouns"))
	verbs      = longer(first(read("verbs")))
	adjectives = longer(read("adjectives"))
	cities     = read("cities")
	people     = append(read("people"), strings.Fields(`Ada Boris Chen Dora Elif Farid Greta Hugo Ines Jan Kofi Lea Mina
		Nils Oskar Pia Quentin Rosa Sami Tara Ugo Vera Walter Xenia Yara Zeno Amir Bella Carlos Diana Elena Finn Gloria Hans
		Ivan Julia Kira Liam Maya Noel Otto Petra Rita Simon Tina Uma Viktor Wanda Lars Omar Priya Raj Sven Tom Max Leo Mia`)...)
	countries = strings.Fields(`Germany France Spain Italy Portugal Austria Poland Norway Sweden Finland Denmark Greece
		Turkey Egypt Kenya Nigeria India Japan China Korea Vietnam Thailand Indonesia Canada Mexico Brazil Chile Peru Cuba
		Argentina Colombia Ireland Scotland Iceland Latvia Estonia Hungary Romania Bulgaria Croatia Serbia Ukraine Georgia
		Israel Jordan Iran Iraq Pakistan Nepal Ghana Morocco Tunisia Ethiopia Uganda Malta Cyprus Belgium`)
	colours   = strings.Fields("red green blue yellow black white grey brown orange purple pink silver gold cyan violet crimson teal indigo")
	units     = strings.Fields("km miles kg grams meters degrees hours minutes seconds days litres pounds euros dollars percent points pages steps bytes volts")
	languages = strings.Fields("German French Spanish Italian English Dutch Polish Turkish Greek Swedish Danish Finnish Russian Arabic Hindi Korean Japanese")
	currency  = strings.Fields("EUR USD GBP JPY CHF SEK NOK DKK PLN CZK HUF INR CNY AUD CAD BRL MXN ZAR")
)

func longer(words []string) (out []string) {
	for _, w := range words {
		if len(w) > 2 {
			out = append(out, w)
		}
	}
	return out
}

func first(forms []string) (out []string) {
	for _, f := range forms {
		w, _, _ := strings.Cut(f, "/")
		out = append(out, w)
	}
	return out
}

var (
	onsets = strings.Fields("b br c ch d dr f fl g gr h j k kr l m n p pl pr qu r s sh sl st t th tr v w x y z sk gl")
	vowels = strings.Fields("a e i o u a e i o u ai ea ia io ou ee oo au")
	codas  = []string{"", "", "", "", "n", "r", "l", "s", "m", "t", "k", "x", "nd", "rt", "st", "ck", "ng"}
)

// made makes a word up, in small letters.
func (s *source) made() string {
	if s.harder(70) {
		return s.splice()
	}
	for {
		var w strings.Builder
		for range s.between(1, 3) {
			w.WriteString(pick(s, onsets) + pick(s, vowels) + pick(s, codas))
		}
		if w.Len() > 2 && s.may(w.String()) {
			return w.String()
		}
	}
}

// splice joins pieces of words. With them nearly all tokens of the vocabulary are
// met in names and values; without, those that the words of training do not have
// would never be copied, and words that are held out are made of them.
func (s *source) splice() string {
	for {
		var w strings.Builder
		for range s.between(2, 3) {
			from := s.word(pick(s, [][]string{nouns, nouns, verbs, adjectives}))
			n := min(len(from), s.between(2, 5))
			at := s.below(len(from) - n + 1)
			w.WriteString(from[at : at+n])
		}
		if s.may(w.String()) {
			return w.String()
		}
	}
}

func capital(w string) string {
	if w == "" {
		return w
	}
	return strings.ToUpper(w[:1]) + w[1:]
}

// noun is a word for a thing: one of the language, or one made up.
func (s *source) noun() string {
	if s.chance(15) || s.harder(35) {
		return s.made()
	}
	return s.word(nouns)
}

func (s *source) person() string {
	if s.chance(40) {
		return capital(s.made())
	}
	return s.word(people)
}

func (s *source) city() string {
	switch {
	case s.harder(8):
		return capital(s.made()) + " " + capital(s.made())
	case s.chance(35):
		return capital(s.made())
	case s.chance(6):
		return pick(s, []string{"New", "San", "Port", "Saint", "Fort", "Los"}) + " " + capital(s.made())
	}
	return s.word(cities)
}

func (s *source) country() string {
	if s.chance(35) {
		return capital(s.made())
	}
	return s.word(countries)
}

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

func (s *source) letters(n int) string {
	var b strings.Builder
	for range n {
		b.WriteByte(letters[s.below(len(letters))])
	}
	return b.String()
}

func (s *source) digits(n int) string {
	var b strings.Builder
	last := byte('1' + s.below(9))
	b.WriteByte(last)
	alike := s.harder(20)
	for range n - 1 {
		if !alike || s.chance(40) {
			last = byte('0' + s.below(10))
		}
		b.WriteByte(last)
	}
	return b.String()
}

// code is an identifier that no language knows.
func (s *source) code() string {
	switch s.below(5) {
	case 0:
		return s.letters(s.between(1, 3)) + "-" + s.digits(s.between(2, 4))
	case 1:
		return s.letters(s.between(2, 3)) + s.digits(s.between(2, 4))
	case 2:
		return s.noun() + "-" + s.digits(s.between(1, 3))
	case 3:
		return s.made() + "_" + s.digits(s.between(1, 3))
	}
	return strings.ToLower(s.letters(1)) + s.digits(s.between(2, 3)) + strings.ToLower(s.letters(1)) + s.digits(1)
}

func (s *source) path() string {
	dir := pick(s, []string{"", "", "src/", "docs/", "data/", "/tmp/", "./", "/home/" + s.made() + "/", s.noun() + "/", "lib/" + s.noun() + "/"})
	return dir + pick(s, []string{s.noun(), s.noun() + "_" + s.noun(), s.made()}) + pick(s, []string{".go", ".py", ".txt", ".md", ".json", ".csv", ".log", ".yaml", ".js"})
}

func (s *source) email() string {
	return strings.ToLower(s.person()) + "@" + pick(s, []string{"example.com", "example.org", s.made() + ".com", s.made() + ".net", s.noun() + ".org"})
}

func (s *source) date() string {
	return fmt.Sprintf("20%02d-%02d-%02d", s.between(10, 39), s.between(1, 12), s.between(1, 28))
}

func (s *source) clock() string { return fmt.Sprintf("%02d:%02d", s.below(24), s.below(60)) }

func (s *source) number() string { return s.digits(s.weighted([]int{0, 4, 6, 3, 2, 1})) }

func (s *source) decimal() string { return s.digits(s.between(1, 2)) + "." + s.digits(1) }

// words are some words in small letters, as a person would write a short text.
func (s *source) words(low, high int) string {
	var out []string
	for range s.between(low, high) {
		switch s.below(8) {
		case 0:
			out = append(out, pick(s, []string{"the", "a", "my", "your", "this", "one", "two", "no", "and", "with", "for", "in", "on"}))
		case 1:
			out = append(out, s.made())
		case 2:
			out = append(out, s.word(adjectives))
		case 3:
			out = append(out, s.word(verbs))
		case 4:
			out = append(out, s.number())
		default:
			out = append(out, s.word(nouns))
		}
	}
	return strings.Join(out, " ")
}

// scalar is a value such as facts and results have.
func (s *source) scalar() string {
	switch s.below(16) {
	case 0:
		return pick(s, colours)
	case 1, 2:
		return s.number()
	case 3:
		return s.number() + " " + pick(s, units)
	case 4:
		return s.code()
	case 5:
		return s.person()
	case 6:
		return s.city()
	case 7:
		return s.clock()
	case 8:
		return s.date()
	case 9:
		return s.decimal() + " " + pick(s, units)
	case 10:
		return s.word(adjectives)
	case 11:
		return s.number() + " " + pick(s, currency)
	case 12:
		return s.made()
	case 13:
		return s.word(adjectives) + " " + s.noun()
	case 14:
		return s.word(adjectives) + ", " + s.number() + " " + pick(s, units)
	}
	return s.noun()
}

// isNumber tells of a text that is a number in JSON too, as nan and inf are not.
func isNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil && json.Valid([]byte(s))
}

// closed are words of small lists, from which values are drawn as well.
var closed = func() map[string]bool {
	out := map[string]bool{}
	for _, list := range [][]string{colours, units, languages, currency, strings.Fields("true false output news agent talk shell helper model small last things speak")} {
		for _, w := range list {
			out[w] = true
		}
	}
	return out
}()

// drawn are the words that names and values are drawn from, in small letters.
var drawn = func() map[string]bool {
	out := map[string]bool{}
	for _, list := range [][]string{nouns, verbs, adjectives, cities, people, countries} {
		for _, w := range list {
			out[strings.ToLower(w)] = true
		}
	}
	return out
}()

// Drawn tells of a word that names and values are drawn from.
func Drawn(word string) bool { return drawn[strings.ToLower(word)] }

// Value tells of a word that may be the value of something.
func Value(word string) bool { return closed[word] }
