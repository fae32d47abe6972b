package llamacpp

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/dynago/dynago/engine"
)

// Control does what the card lists: reset makes every slot forget its prompt.
func (e *Engine) Control(ctx context.Context, name string, _ json.RawMessage) (json.RawMessage, error) {
	if name != engine.ControlReset {
		return nil, engine.Errorf(engine.Unsupported, "llama-server has no control %q", name)
	}
	for slot := range e.life.place().slots {
		if _, err := e.client.Post(ctx, slotAction(int(slot), "erase"), nil, []byte("{}")); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func slotAction(slot int, action string) string {
	return "/slots/" + strconv.Itoa(slot) + "?action=" + action
}

// resets says whether slots can be told what to do: only a server that was
// started with --slot-save-path lets them, and then calls an action that is none
// a bad request.
func (e *Engine) resets(ctx context.Context) bool {
	_, err := e.client.Post(ctx, slotAction(0, "none"), nil, []byte("{}"))
	told, ok := err.(*engine.Error)
	return ok && told.Status == http.StatusBadRequest
}
