package parser

import "crypto/rand"

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// newID returns a random id for a tool call: "call_" and 24 characters of
// [0-9A-Za-z].
func newID() string {
	const n = 24
	id := append(make([]byte, 0, 5+n), "call_"...)
	var random [32]byte
	for len(id) < cap(id) {
		_, _ = rand.Read(random[:]) // never fails
		for _, b := range random {
			// 248 is the largest multiple of 62 in a byte: what is above would
			// make some characters likelier than others.
			if b < 248 && len(id) < cap(id) {
				id = append(id, base62[b%62])
			}
		}
	}
	return string(id)
}
