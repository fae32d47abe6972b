package main

import (
	"errors"
	"fmt"

	"github.com/dynago/dynago/router"
)

// conditionalSettings say when decode workers compute prompts themselves.
type conditionalSettings struct {
	On          bool     `name:"router-conditional-disagg" env:"DYN_ROUTER_CONDITIONAL_DISAGG" negatable:"" help:"Let decode workers compute short prompts themselves, though there are prefill workers."`
	Object      string   `name:"router-conditional-disagg-config" env:"DYN_ROUTER_CONDITIONAL_DISAGG_CONFIG" placeholder:"JSON" help:"When they do, as an object with policy (isl_bounding, prefill_load or isl_or_load), eff_isl_threshold, eff_isl_ratio_threshold, prefill_busy_threshold and decode_busy_threshold. It wins over the flags below, which are its members."`
	Policy      *string  `name:"router-conditional-disagg-policy" env:"DYN_ROUTER_CONDITIONAL_DISAGG_POLICY" choice:"isl_bounding,prefill_load,isl_or_load" placeholder:"NAME" help:"By how much is left to compute, by how busy prefill workers are, or by either; otherwise isl_bounding."`
	ISL         *int     `name:"router-conditional-disagg-eff-isl-threshold" env:"DYN_ROUTER_CONDITIONAL_DISAGG_EFF_ISL_THRESHOLD" range:"0.." placeholder:"TOKENS" help:"Prompts with fewer tokens to compute are short; otherwise 2048."`
	ISLRatio    *float64 `name:"router-conditional-disagg-eff-isl-ratio-threshold" env:"DYN_ROUTER_CONDITIONAL_DISAGG_EFF_ISL_RATIO_THRESHOLD" range:"0..1" placeholder:"X" help:"If they are also less than this part of the prompt; otherwise 0.7."`
	PrefillBusy *float64 `name:"router-conditional-disagg-prefill-busy-threshold" env:"DYN_ROUTER_CONDITIONAL_DISAGG_PREFILL_BUSY_THRESHOLD" range:"0.." placeholder:"X" help:"A prefill worker is busy with more to compute than this many passes; otherwise that of the queue."`
	DecodeBusy  *float64 `name:"router-conditional-disagg-decode-busy-threshold" env:"DYN_ROUTER_CONDITIONAL_DISAGG_DECODE_BUSY_THRESHOLD" range:"0.." placeholder:"X" help:"A decode worker with a larger part of its KV blocks in use takes no prompts; otherwise it always does."`
}

// config returns when decode workers compute prompts, or nil for never.
func (s *conditionalSettings) config() (*router.Conditional, error) {
	if !s.On {
		if s.Object != "" {
			return nil, errors.New("--router-conditional-disagg-config needs --router-conditional-disagg")
		}
		for name, given := range map[string]bool{
			"policy": s.Policy != nil, "eff-isl-threshold": s.ISL != nil, "eff-isl-ratio-threshold": s.ISLRatio != nil,
			"prefill-busy-threshold": s.PrefillBusy != nil, "decode-busy-threshold": s.DecodeBusy != nil,
		} {
			if given {
				return nil, fmt.Errorf("--router-conditional-disagg-%s needs --router-conditional-disagg", name)
			}
		}
		return nil, nil
	}
	c := router.DefaultConditional()
	override((*string)(&c.Policy), s.Policy)
	override(&c.ISL, s.ISL)
	override(&c.ISLRatio, s.ISLRatio)
	c.PrefillBusy, c.DecodeBusy = s.PrefillBusy, s.DecodeBusy
	if s.Object == "" {
		return &c, nil
	}
	if err := c.Merge([]byte(s.Object)); err != nil {
		return nil, fmt.Errorf("--router-conditional-disagg-config: %w", err)
	}
	return &c, nil
}
