package kvstore

// glob reports whether s matches a pattern of Redis: * any run of bytes, ? any
// byte, [a-c] and [^a] a set, and \ takes the next byte as it is. It needs no more
// time than the product of both lengths.
func glob(pattern, s string) bool {
	p, i := 0, 0
	star, mark := -1, 0 // where to go on if the last * takes one byte more
	for i < len(s) {
		if p < len(pattern) && pattern[p] == '*' {
			star, mark = p, i
			p++
			continue
		}
		if next, ok := globByte(pattern, p, s[i]); ok {
			p = next
			i++
			continue
		}
		if star < 0 {
			return false
		}
		mark++
		p, i = star+1, mark
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// globByte matches one byte with what stands at p, and returns where the pattern
// goes on.
func globByte(pattern string, p int, b byte) (next int, ok bool) {
	if p >= len(pattern) {
		return p, false
	}
	switch pattern[p] {
	case '?':
		return p + 1, true
	case '[':
		return globSet(pattern, p+1, b)
	case '\\':
		if p+1 < len(pattern) {
			p++
		}
	}
	return p + 1, pattern[p] == b
}

// globSet matches a set, which ends with ] or the pattern.
func globSet(pattern string, p int, b byte) (next int, ok bool) {
	not := p < len(pattern) && pattern[p] == '^'
	if not {
		p++
	}
	for ; p < len(pattern) && pattern[p] != ']'; p++ {
		if pattern[p] == '\\' && p+1 < len(pattern) {
			p++
		}
		low, high := pattern[p], pattern[p]
		if p+2 < len(pattern) && pattern[p+1] == '-' {
			high = pattern[p+2]
			p += 2
		}
		if min(low, high) <= b && b <= max(low, high) {
			ok = true
		}
	}
	return min(p+1, len(pattern)), ok != not
}
