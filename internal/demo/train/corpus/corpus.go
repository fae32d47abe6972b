// Package corpus holds the written texts and word lists from which the models in
// the box learn: the tokenizer of the demo, and the conversations of the tiny one.
package corpus

import "embed"

// Files are the texts, one per topic, named TOPIC.txt.
//
//go:embed *.txt
var Files embed.FS
