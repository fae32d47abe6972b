package main

import (
	"reflect"
	"testing"

	"github.com/dynago/dynago/router"
)

// Members of the object may be settings of their own; the object wins, member by
// member.
func TestConditionalSettings(t *testing.T) {
	policy := "isl_or_load"
	for _, tc := range []struct {
		name string
		give conditionalSettings
		want *router.Conditional // nil: none
	}{
		{"off", conditionalSettings{}, nil},
		{"on", conditionalSettings{On: true}, new(router.DefaultConditional())},
		{
			"settings",
			conditionalSettings{On: true, Policy: &policy, ISL: new(7), ISLRatio: new(0.25), PrefillBusy: new(1.5), DecodeBusy: new(0.5)},
			&router.Conditional{Policy: router.ByISLOrLoad, ISL: 7, ISLRatio: 0.25, PrefillBusy: new(1.5), DecodeBusy: new(0.5)},
		},
		{
			"object over settings",
			conditionalSettings{On: true, Policy: &policy, ISL: new(7), PrefillBusy: new(1.5), Object: `{"eff_isl_threshold":8,"decode_busy_threshold":0.75}`},
			&router.Conditional{Policy: router.ByISLOrLoad, ISL: 8, ISLRatio: 0.7, PrefillBusy: new(1.5), DecodeBusy: new(0.75)},
		},
	} {
		got, err := tc.give.config()
		if err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, %v, want %+v", tc.name, got, err, tc.want)
		}
	}
}
