package anthropic

import (
	"net/http"

	"github.com/dynago/dynago/internal/wire"
)

// readThread reads how a request is part of a thread: a conversation that the
// server keeps, so that its client sends only what is new.
func readThread(r *wire.Reader, b *body) error {
	b.goesOn = false
	return lenient(r, &b.goesOn, '{', func(r *wire.Reader) (goesOn bool, err error) {
		kind := ""
		err = r.Object("an object", func(name []byte) error {
			if string(name) != "type" {
				return r.Skip()
			}
			return lenient(r, &kind, '"', wire.Text)
		})
		return kind == "continue", err
	})
}

// threadNotFound refuses a request that leaves out what was said before. No threads
// are kept here, and an answer to the rest would be an answer to something else.
// Clients know the code, and send the whole conversation.
func threadNotFound() *wire.Error {
	return &wire.Error{
		Status: http.StatusNotFound, Message: "thread: conversations are not kept here: send all messages",
		Param: "thread", Details: map[string]string{"error_code": "thread_not_found"},
	}
}
