package main

// pacedFlags make the mock engine take 20 ms for each token.
var pacedFlags = []string{"--speedup-ratio", "0.3"}

// silent makes the mock engine fall silent after a first token, for so many
// streams at once.
func (b *bench) silent(streams int) ([]string, error) { return nil, nil }
