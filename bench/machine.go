package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// machine says where figures were taken.
type machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	Load   string `json:"load"` // averages over 1, 5 and 15 minutes, at the start
}

func (m machine) String() string {
	return fmt.Sprintf("machine: %s, %d cores, Linux %s, %s, load %s", m.CPU, m.Cores, m.Kernel, m.Go, m.Load)
}

func thisMachine() machine {
	m := machine{CPU: "unknown CPU", Cores: runtime.NumCPU(), Kernel: firstFields("/proc/sys/kernel/osrelease", 1), Go: runtime.Version()}
	m.Load = firstFields("/proc/loadavg", 3)
	cpuinfo, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(cpuinfo)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	return m
}

// firstFields returns the first n words of a file, or "unknown".
func firstFields(path string, n int) string {
	text, err := os.ReadFile(path)
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < n {
		return "unknown"
	}
	return strings.Join(fields[:n], " ")
}
