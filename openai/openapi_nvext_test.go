package openai_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/openai"
)

// node is as much of a JSON schema as tells of members.
type node struct {
	Description string
	Properties  map[string]node
	Items       *node
}

// TestOpenAPITellsOfNVExt holds that the document has the members that are decoded
// and written, no fewer and no more.
func TestOpenAPITellsOfNVExt(t *testing.T) {
	var doc struct {
		Components struct{ Schemas map[string]node }
	}
	if err := json.Unmarshal(openai.OpenAPI("d", "1", 0), &doc); err != nil {
		t.Fatal(err)
	}
	asked, answered := doc.Components.Schemas["NVExt"], doc.Components.Schemas["NVExtAnswer"]
	told := map[string]bool{}
	names("", asked, told)
	decoded := map[string]bool{}
	members("", reflect.TypeFor[nvext.Ext](), decoded)
	// Of a range, these say where it is, and an answer has but one.
	for _, name := range []string{"start", "end", "message"} {
		delete(decoded, ".retention.decode."+name)
	}
	if d := cmp.Diff(decoded, told); d != "" {
		t.Errorf("NVExt -decoded +told\n%s", d)
	}
	for name, of := range map[string]reflect.Type{
		nvext.MemberWorkerID: reflect.TypeFor[nvext.Placed](), nvext.MemberTiming: reflect.TypeFor[nvext.Timing](), nvext.MemberCacheControl: reflect.TypeFor[nvext.Granted](),
	} {
		told, written := map[string]bool{}, map[string]bool{}
		names("", answered.Properties[name], told)
		members("", of, written)
		if d := cmp.Diff(written, told); d != "" {
			t.Errorf("%s -written +told\n%s", name, d)
		}
	}
	for _, name := range []string{
		nvext.MemberRoutedExperts, nvext.MemberEngineData, nvext.MemberStopReason, nvext.MemberStopReasons,
		nvext.MemberCompletionTokenIDs, nvext.MemberPromptLogprobs, nvext.MemberTokenIDs,
	} {
		if _, ok := answered.Properties[name]; !ok {
			t.Errorf("NVExtAnswer has no %s", name)
		}
	}
	for name, member := range asked.Properties {
		if member.Description == "" {
			t.Errorf("%s is not described", name)
		}
	}
}

// names lists the members below a schema by their paths.
func names(path string, n node, all map[string]bool) {
	if n.Items != nil {
		names(path, *n.Items, all)
	}
	for name, member := range n.Properties {
		all[path+"."+name] = true
		names(path+"."+name, member, all)
	}
}

// members lists those of a type.
func members(path string, t reflect.Type, all map[string]bool) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return
	}
	for field := range t.Fields() {
		if field.Anonymous {
			members(path, field.Type, all)
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		all[path+"."+name] = true
		members(path+"."+name, field.Type, all)
	}
}
