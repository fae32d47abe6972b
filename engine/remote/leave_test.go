package remote_test

import (
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
)

// The last words of a request may come after the goodbye of its worker: they go over
// another connection.
func TestLastWordsAfterGoodbye(t *testing.T) {
	goodbye, heard, dead := make(chan struct{}), make(chan struct{}), make(chan struct{})
	client := meet(t, &rogue{
		describe: func(s workerpb.Worker_DescribeServer) error {
			if err := s.Send(ready()); err != nil {
				return err
			}
			<-goodbye
			return nil
		},
		generate: func(_ *workerpb.GenerateRequest, s workerpb.Worker_GenerateServer) error {
			if err := s.Send(&workerpb.Delta{TokenIds: []uint32{4}}); err != nil {
				return err
			}
			close(goodbye)
			<-heard
			return s.Send(&workerpb.Delta{TokenIds: []uint32{5}, Finish: workerpb.Finish_FINISH_LENGTH})
		},
	})
	is := make(chan struct{})
	go func() {
		last := engine.Loading
		for s := range client.Card(t.Context()) {
			switch {
			case s.State == last:
			case s.State == engine.Ready && last == engine.Loading:
				close(is)
			case last == engine.Ready:
				close(heard)
			}
			if last = s.State; last == engine.Dead {
				close(dead)
				return
			}
		}
	}()
	<-is
	ids, last, err := answerOf(t, client, nil)
	if err != nil || len(ids) != 2 || last.Finish != engine.FinishLength {
		t.Errorf("ids %v, finish %v, %v", ids, last.Finish, err)
	}
	select {
	case <-dead:
	case <-time.After(10 * time.Second):
		t.Error("the worker is not dead when all has ended")
	}
}
