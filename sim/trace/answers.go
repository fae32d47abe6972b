package trace

// reuse is what a row of ours tells of the turn before, which hashes of prompts cannot.
type reuse struct {
	// Common tokens of the prompt and the answer before, which were Last, are what the
	// prompt begins with.
	Common *int64 `json:"reused_tokens"`
	Last   *int64 `json:"last_tokens"`
}

// repeat lets what later prompts repeat of answers be pieces of the same streams: then a
// replay finds in caches what was found there. Hashes alone show that a prompt begins
// with the whole blocks of the one before, and neither that its last block, which was
// not full, has become one that is, nor what in it was an answer. Later prompts come
// first, since what a prompt ends with is itself what a later one says it is.
func (rec *recording) repeat() {
	for i := len(rec.calls) - 1; i >= 0; i-- {
		if j := rec.graph.before[i]; j >= 0 {
			rec.calls[j].repeatedBy(&rec.calls[i], int(rec.blockSize))
		}
	}
}

// repeatedBy changes prompt and answer of c to what the prompt of the turn behind it says
// that they were.
func (c *call) repeatedBy(next *call, size int) {
	if next.reuse.Common == nil || next.reuse.Last == nil {
		return
	}
	common, last, prompt := int(*next.reuse.Common), int(*next.reuse.Last), c.Prompt.Len()
	// The token that ends an answer need not count as one of it.
	before := last == prompt+c.output || last == prompt+c.output-1
	if !before || common < prompt || common > min(last, next.Prompt.Len()) {
		return
	}
	full := prompt / size
	for k := range full {
		if c.Prompt[k] != next.Prompt[k] {
			return // one of the two rows is wrong
		}
	}
	own := c.Answer[0]
	repeated := uint32(common - prompt)
	c.Prompt = append(c.Prompt[:full:full], next.Prompt.between(full*size, prompt)...)
	c.Answer, c.repeated = next.Prompt.between(prompt, common), common-prompt
	if own.Len > repeated {
		c.Answer = append(c.Answer, Piece{Stream: own.Stream, From: repeated, Len: own.Len - repeated})
	}
}

// between returns the tokens from one place to another, which the text has, as a text of
// its own.
func (t Text) between(from, to int) Text {
	var part Text
	for _, p := range t {
		n := int(p.Len)
		if from < n && to > 0 {
			start, end := max(0, from), min(n, to)
			if end > start {
				part = append(part, Piece{Stream: p.Stream, From: p.From + uint32(start), Len: uint32(end - start)})
			}
		}
		from, to = from-n, to-n
	}
	return part
}
