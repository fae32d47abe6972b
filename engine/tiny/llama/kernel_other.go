//go:build !amd64

package llama

var fastest = &plain
