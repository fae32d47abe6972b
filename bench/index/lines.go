package main

import "math/rand/v2"

// lines is what this machine charges for memory at the moment, which most of an
// index's time goes to: nanoseconds for a line of 64 MiB in random order.
type lines struct {
	// Chased lines name the next one, so that each is waited for.
	Chased float64 `json:"chased"`
	// Touched lines are known beforehand, read and written.
	Touched float64 `json:"touched"`
}

const (
	lineWords = 8 // of 8 bytes
	lineCount = 64 << 20 / (8 * lineWords)
)

func measureLines() lines {
	oneThread()
	memory := make([]uint64, lineCount*lineWords)
	order := rand.New(rand.NewPCG(42, 42)).Perm(lineCount)
	for i, at := range order {
		memory[at*lineWords] = uint64(order[(i+1)%lineCount])
	}
	const reads = lineCount
	began := threadTime()
	at := uint64(order[0])
	for range reads {
		at = memory[at*lineWords]
	}
	chased := threadTime() - began
	began = threadTime()
	for _, i := range order {
		memory[i*lineWords+1] += at
	}
	touched := threadTime() - began
	return lines{Chased: float64(chased) / reads, Touched: float64(touched) / lineCount}
}
