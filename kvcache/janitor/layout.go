package janitor

import (
	"path"
	"strconv"
	"strings"
)

// Layout tells which block a file belongs to, by its path in the directory, with
// slashes. ok is false for files that are no blocks.
type Layout func(name string) (b Block, ok bool)

// maxRanks is more than any engine has of one kind.
const maxRanks = 4096

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
	model, ranks := cutRanks(model)
	return Block{Model: model, Hash: hash, Group: pool, Ranks: ranks}, true
}

// cutRanks returns a name without the numbers of ranks at its end, and how many
// files that makes: _<rank>_<size> of tensors, then _<size>_<rank> of pipelines,
// then _cp<rank>_<size> of contexts, each of them only if there are such.
func cutRanks(name string) (model string, ranks int) {
	parts := strings.Split(name, "_")
	ranks = 1
	cut := func(rank, size string) bool {
		r, s := number(rank), number(size)
		if r < 0 || r >= s || s > maxRanks {
			return false
		}
		ranks *= s
		parts = parts[:len(parts)-2]
		return true
	}
	last := func() (a, b string) {
		if len(parts) < 3 {
			return "", ""
		}
		return parts[len(parts)-2], parts[len(parts)-1]
	}
	if a, b := last(); strings.HasPrefix(a, "cp") {
		cut(a[len("cp"):], b)
	}
	a, b := last()
	if cut(b, a) {
		a, b = last()
	}
	cut(a, b)
	return strings.Join(parts, "_"), ranks
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

func isNumber(s string) bool { return number(s) >= 0 }

// number returns the number that s is, or -1.
func number(s string) int {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return -1
	}
	return int(n)
}
