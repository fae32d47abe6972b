package tiny

import (
	"fmt"
	"slices"

	"github.com/dynago/dynago/engine"
)

// computer is the engine as its shell sees it.
type computer struct{ *Engine }

// Card implements [mock.Computer].
func (e computer) Card(c *engine.Card) {
	c.Engine = fmt.Sprintf("tiny (llama, %.1f M weights)", float64(e.model.Config().Parameters())/1e6)
	c.Device = engine.DeviceCPU
	c.Disagg.Layout = e.ranks[0].cache.Layout()
	c.Features = slices.DeleteFunc(c.Features, func(f engine.Feature) bool { return f == engine.FeatureLoRA })
	c.Features = append(append(c.Features, engine.FeatureLogitBias), e.guided()...)
}
