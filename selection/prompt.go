package selection

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// prompt is a prompt as dispatchers tell it: by its tokens, with media or without,
// or by the hashes of its blocks if they keep the tokens to themselves.
type prompt struct {
	Tokens  []uint32      `json:"token_ids,omitzero"`
	Media   []*blockMedia `json:"block_mm_infos,omitzero"` // block by block
	Routing *struct {
		Tokens []uint32      `json:"routing_token_ids"`
		Media  []*blockMedia `json:"block_mm_infos"`
	} `json:"mm_routing_info,omitzero"` // stands for both

	BlockHashes    []hash `json:"block_hashes,omitzero"`
	SequenceHashes []hash `json:"sequence_hashes,omitzero"`
	Length         *int   `json:"isl_tokens,omitzero"`

	LoRA  string `json:"lora_name,omitzero"`
	Salt  string `json:"cache_salt,omitzero"`
	Eagle *bool  `json:"is_eagle,omitzero"`

	// sequenceAlone says that SequenceHashes are enough: the worker is known, and
	// nobody looks into the index.
	sequenceAlone bool
}

// blockMedia are the media that have a placeholder in one block; nil is none.
type blockMedia struct {
	Objects []struct {
		Hash uint64 `json:"mm_hash"`
	} `json:"mm_objects"`
}

// hash is a hash of 64 bits, which some write with a sign and others without.
type hash uint64

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (h *hash) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	v, err := d.ReadValue()
	if err != nil {
		return err
	}
	if signed, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		*h = hash(signed)
		return nil
	}
	n, err := strconv.ParseUint(string(v), 10, 64)
	if err != nil {
		return fmt.Errorf("want a hash, a whole number of 64 bits; got %s", clip(string(v)))
	}
	*h = hash(n)
	return nil
}

// mostTokens bounds the length that a prompt of hashes may claim.
const mostTokens = 1 << 28

// fill puts the prompt into a query. The pools say how the workers it is for cut
// prompts into blocks.
func (p *prompt) fill(q *router.Query, pools []pool) error {
	q.Namespace = kv.Namespace{LoRA: p.LoRA, Salt: p.Salt}
	tokens, media := p.Tokens, p.Media
	if p.Routing != nil && len(p.Routing.Tokens) > 0 {
		tokens, media = p.Routing.Tokens, p.Routing.Media
	}
	switch {
	case len(tokens) > 0 && (p.BlockHashes != nil || p.SequenceHashes != nil):
		return bad("a prompt is given by token_ids or by block_hashes and sequence_hashes, not by both")
	case len(tokens) > 0 && len(media) > 0:
		return p.withMedia(q, tokens, media, pools)
	case len(tokens) > 0:
		q.Tokens = tokens
		return nil
	case p.Tokens != nil:
		return bad("token_ids: want at least one token")
	}
	return p.byHashes(q, pools)
}

// byHashes is fill for a prompt whose blocks the dispatcher has hashed.
func (p *prompt) byHashes(q *router.Query, pools []pool) error {
	switch {
	case p.BlockHashes == nil && !p.sequenceAlone:
		return bad("block_hashes is required without token_ids")
	case p.SequenceHashes == nil:
		return bad("sequence_hashes is required without token_ids")
	case p.Length == nil:
		return bad("isl_tokens is required without token_ids")
	case *p.Length <= 0 || *p.Length > mostTokens:
		return bad("isl_tokens: got %d, want a number from 1 to %d", *p.Length, mostTokens)
	case p.BlockHashes != nil && len(p.BlockHashes) != len(p.SequenceHashes):
		return bad("block_hashes length %d must match sequence_hashes length %d", len(p.BlockHashes), len(p.SequenceHashes))
	}
	if len(pools) == 1 {
		if most := *p.Length / pools[0].blockSize; len(p.SequenceHashes) > most {
			return bad("sequence_hashes: got %d, and a prompt of %d tokens has %d complete blocks of %d", len(p.SequenceHashes), *p.Length, most, pools[0].blockSize)
		}
	}
	h := &router.Hashes{Tokens: *p.Length}
	for _, local := range p.BlockHashes {
		h.Local = append(h.Local, kv.LocalHash(local))
	}
	for _, seq := range p.SequenceHashes {
		h.Seq = append(h.Seq, kv.SeqHash(seq))
	}
	q.Hashes = h
	return nil
}

// withMedia is fill for a prompt in which media stand: a block's name covers
// those that have a placeholder in it.
func (p *prompt) withMedia(q *router.Query, tokens []uint32, media []*blockMedia, pools []pool) error {
	if len(pools) > 1 {
		return bad("block_mm_infos: the workers of this model have blocks of different sizes")
	}
	if len(pools) == 0 {
		q.Tokens = tokens // there is nobody to choose from, which is said later
		return nil
	}
	scheme := kv.PublicScheme(pools[0].blockSize, q.Namespace)
	scheme.Eagle = value(p.Eagle, pools[0].eagle)
	n := scheme.Blocks(len(tokens))
	if len(media) > n+1 {
		return bad("block_mm_infos: got %d, and a prompt of %d tokens has %d blocks of %d", len(media), len(tokens), n, scheme.BlockSize)
	}
	window := scheme.BlockSize
	if scheme.Eagle {
		window++
	}
	h := &router.Hashes{Tokens: len(tokens)}
	for i := range n {
		var in []uint64
		if i < len(media) && media[i] != nil {
			for _, o := range media[i].Objects {
				in = append(in, o.Hash)
			}
		}
		h.Local = append(h.Local, kv.HashMediaBlock(tokens[i*scheme.BlockSize:][:window], in, scheme.Seed))
	}
	h.Seq = scheme.AppendSeq(nil, h.Local)
	q.Hashes = h
	return nil
}

// bytes is about how much memory a query holds.
func bytes(q *router.Query) int {
	n := 512 + len(q.ID) + len(q.Model) + 4*cap(q.Tokens) + 8*cap(q.Allow) + len(q.Session.ID)
	if h := q.Hashes; h != nil {
		n += 8*cap(h.Local) + 8*cap(h.Seq)
	}
	for _, t := range q.Require {
		n += 16 + len(t)
	}
	for t := range q.Prefer {
		n += 48 + len(t)
	}
	return n
}
