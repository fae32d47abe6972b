//go:build !race

package indextest

// slow is how many times slower everything is: not at all.
const slow = 1
