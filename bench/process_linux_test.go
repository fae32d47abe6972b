package main

import (
	"os/exec"
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
