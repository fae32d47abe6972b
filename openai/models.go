package openai

import (
	"strconv"

	"github.com/dynago/dynago/internal/wire"
)

// Model is one entry of the model list. A ContextWindow or MaxOutputTokens of 0
// is unknown and left out.
type Model struct {
	ID              string
	Created         int64 // Unix seconds
	OwnedBy         string
	ContextWindow   int // tokens
	MaxOutputTokens int
}

// AppendModels appends the answer to GET /v1/models.
func AppendModels(dst []byte, m []Model) []byte {
	dst = append(dst, `{"object":"list","data":[`...)
	for i := range m {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendModel(dst, m[i])
	}
	return append(dst, "]}"...)
}

// AppendModel appends the answer to GET /v1/models/{id}.
func AppendModel(dst []byte, m Model) []byte {
	dst = append(dst, `{"id":`...)
	dst = wire.AppendString(dst, m.ID)
	dst = append(dst, `,"object":"model","created":`...)
	dst = strconv.AppendInt(dst, m.Created, 10)
	dst = append(dst, `,"owned_by":`...)
	dst = wire.AppendString(dst, m.OwnedBy)
	if m.ContextWindow > 0 {
		dst = append(dst, `,"context_window":`...)
		dst = strconv.AppendInt(dst, int64(m.ContextWindow), 10)
	}
	if m.MaxOutputTokens > 0 {
		dst = append(dst, `,"max_output_tokens":`...)
		dst = strconv.AppendInt(dst, int64(m.MaxOutputTokens), 10)
	}
	return append(dst, '}')
}
