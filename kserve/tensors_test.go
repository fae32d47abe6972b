package kserve_test

import (
	"strings"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kserve"
)

func TestTakeExt(t *testing.T) {
	const object = `{"backend_instance_id": 7, "unheard_of": 1}`
	for _, tt := range []struct {
		value  any
		strict bool
		worker uint64 // that is asked for
		want   string // in the error
	}{
		{value: object, worker: 7},
		{value: "null"},
		{value: object, strict: true, want: "unheard_of"},
		{value: "{", want: "invalid nvext: "},
		{value: `{"backend_instance_id": []}`, want: "invalid nvext: "},
		{value: int64(7), want: "invalid nvext: expected a string"},
	} {
		given := engine.Parameters{"k": true, "nvext": tt.value}
		r := &engine.TensorRequest{Parameters: given}
		ext, err := kserve.TakeExt(r, tt.strict)
		switch {
		case tt.want != "":
			if engine.KindOf(err) != engine.InvalidArgument || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v: %v, want %q", tt.value, err, tt.want)
			}
		case err != nil:
			t.Errorf("%v: %v", tt.value, err)
		case tt.worker != 0 && (ext == nil || ext.BackendInstanceID == nil || uint64(*ext.BackendInstanceID) != tt.worker || string(r.Ext) != object):
			t.Errorf("%v: %+v, the worker is sent %s", tt.value, ext, r.Ext)
		case tt.worker == 0 && (ext != nil || r.Ext != nil):
			t.Errorf("%v: %+v, the worker is sent %s", tt.value, ext, r.Ext)
		case len(r.Parameters) != 1 || len(given) != 2:
			t.Errorf("%v: parameters %v of %v", tt.value, r.Parameters, given)
		}
	}
	r := &engine.TensorRequest{Parameters: engine.Parameters{"k": true}}
	if ext, err := kserve.TakeExt(r, true); ext != nil || err != nil || r.Ext != nil {
		t.Errorf("without: %+v, %v", ext, err)
	}
}
