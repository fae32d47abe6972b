//go:build race

package indextest

// slow is how many times slower everything is, at least. Histories are that much
// shorter, so that the suite stays within a minute.
const slow = 5
