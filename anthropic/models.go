package anthropic

import (
	"strconv"
	"time"

	"github.com/dynago/dynago/internal/wire"
)

// Model is one entry of the model list. A ContextWindow or MaxOutputTokens of 0
// is unknown and left out.
type Model struct {
	ID              string
	Created         time.Time
	ContextWindow   int // tokens
	MaxOutputTokens int
}

// AppendModels appends the answer to GET /v1/models: all there are, on one page.
func AppendModels(dst []byte, m []Model) []byte {
	dst = append(dst, `{"data":[`...)
	for i := range m {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendModel(dst, m[i])
	}
	dst = append(dst, `],"has_more":false,"first_id":`...)
	if len(m) == 0 {
		return append(dst, `null,"last_id":null}`...)
	}
	dst = wire.AppendString(dst, m[0].ID)
	dst = append(dst, `,"last_id":`...)
	return append(wire.AppendString(dst, m[len(m)-1].ID), '}')
}

// AppendModel appends the answer to GET /v1/models/{id}.
func AppendModel(dst []byte, m Model) []byte {
	dst = append(dst, `{"type":"model","id":`...)
	dst = wire.AppendString(dst, m.ID)
	dst = append(dst, `,"display_name":`...)
	dst = wire.AppendString(dst, m.ID)
	dst = append(dst, `,"created_at":"`...)
	dst = append(m.Created.UTC().AppendFormat(dst, time.RFC3339), '"')
	if m.ContextWindow > 0 {
		dst = append(dst, `,"max_input_tokens":`...)
		dst = strconv.AppendInt(dst, int64(m.ContextWindow), 10)
	}
	if m.MaxOutputTokens > 0 {
		dst = append(dst, `,"max_tokens":`...)
		dst = strconv.AppendInt(dst, int64(m.MaxOutputTokens), 10)
	}
	return append(dst, '}')
}

// AppendCount appends the answer to a count_tokens request.
func AppendCount(dst []byte, tokens int) []byte {
	dst = append(dst, `{"input_tokens":`...)
	return append(strconv.AppendInt(dst, int64(tokens), 10), '}')
}
