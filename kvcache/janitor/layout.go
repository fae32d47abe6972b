package janitor

import (
	"path"
	"strings"
)

// Layout tells which block a file belongs to, by its path in the directory, with
// slashes. ok is false for files that are no blocks.
type Layout func(name string) (b Block, ok bool)

var (
	_ Layout = SGLang
	_ Layout = VLLM
)

// SGLang is the layout of its file backend: <sha256>[.<pool>]_<model>, then the
// ranks that share the page, in one directory:
//
//	4ebf….bin of one rank: 4ebf…_meta-llama-Llama-3.1-8B_0_2.bin
func SGLang(name string) (b Block, ok bool) {
	stem, ok := strings.CutSuffix(name, ".bin")
	if !ok || strings.Contains(stem, "/") {
		return Block{}, false
	}
	key, model, ok := strings.Cut(stem, "_")
	hash, pool, _ := strings.Cut(key, ".")
	if !ok || len(hash) != 64 || !isHex(hash) {
		return Block{}, false
	}
	return Block{Model: withoutRanks(model), Hash: hash, Group: pool}, true
}

// withoutRanks returns a name without the numbers of ranks at its end:
// _<rank>_<size> of tensors, then of pipelines and of contexts.
func withoutRanks(name string) string {
	parts := strings.Split(name, "_")
	n := len(parts)
	if n > 2 && isNumber(parts[n-1]) && strings.HasPrefix(parts[n-2], "cp") && isNumber(parts[n-2][2:]) {
		n -= 2
	}
	for range 2 {
		if n > 2 && isNumber(parts[n-1]) && isNumber(parts[n-2]) {
			n -= 2
		}
	}
	return strings.Join(parts[:n], "_")
}

// VLLM is the layout of its fs tier:
// <model>_<12 hex>_r<rank>/<3 hex>/<2 hex>_g<group>/<hash>.bin.
func VLLM(name string) (b Block, ok bool) {
	parts := strings.Split(name, "/")
	if len(parts) != 4 {
		return Block{}, false
	}
	hash, isBlock := strings.CutSuffix(parts[3], ".bin")
	model, rank, hasRank := cutLast(parts[0], "_r")
	two, group, hasGroup := strings.Cut(parts[2], "_g")
	if !isBlock || !hasRank || !hasGroup || !isNumber(rank) || !isNumber(group) || model == "" || !isHex(hash) ||
		len(parts[1]) != 3 || len(two) != 2 || !strings.HasPrefix(hash, parts[1]+two) {
		return Block{}, false
	}
	return Block{Model: path.Base(model), Hash: hash, Group: group}, true
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func isHex(s string) bool { return s != "" && strings.Trim(s, "0123456789abcdef") == "" }

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
