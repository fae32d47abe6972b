package main

import (
	"os/exec"
	"strings"
	"testing"
)

func TestOwnCostIsRead(t *testing.T) {
	command := exec.Command("cat")
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := start(command)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.cpu(); err != nil {
		t.Error(err)
	}
	if rss, err := p.rss(); err != nil || rss <= 0 {
		t.Errorf("rss = %v, %v; want some", rss, err)
	}
	in.Close()
	<-p.ended
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}

func TestFailureTellsTheLastLines(t *testing.T) {
	p, err := start(exec.Command("sh", "-c", "for i in 1 2 3 4 5 6 7; do echo line $i >&2; done; exit 3"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.kill()
	<-p.ended
	err = p.stop()
	if err == nil || !strings.HasSuffix(err.Error(), "exit status 3: line 3\nline 4\nline 5\nline 6\nline 7") {
		t.Errorf("error %q, want the status and the last five lines", err)
	}
}
