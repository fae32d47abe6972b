package standing_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/internal/demo"
)

// writings are one answer in the hands of every family: a thought, a text, two
// calls. What a template shows of the family stands before it.
var writings = map[string]struct{ shows, emit string }{
	"hermes":        {"<tool_call> <think>", think("<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\":\"München\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\":\"Zürich\"}}\n</tool_call>")},
	"qwen3_coder":   {"<tool_call> <function= <think>", think("<tool_call>\n<function=weather>\n<parameter=city>\nMünchen\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=weather>\n<parameter=city>\nZürich\n</parameter>\n</function>\n</tool_call>")},
	"glm47":         {"<tool_call> <arg_key> <think>", think("<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>München</arg_value>\n</tool_call><tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Zürich</arg_value>\n</tool_call>")},
	"minimax_m2":    {"<minimax:tool_call> <think>", think("<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">München</parameter>\n</invoke>\n<invoke name=\"weather\">\n<parameter name=\"city\">Zürich</parameter>\n</invoke>\n</minimax:tool_call>")},
	"deepseek_v4":   {"<｜DSML｜tool_calls> <think>", think("\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">München</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Zürich</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>")},
	"deepseek_v3":   {"<｜tool▁calls▁begin｜> ```json <think>", think("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\":\"München\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\":\"Zürich\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>")},
	"deepseek_v3_1": {"<｜tool▁calls▁begin｜> <think>", think("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\":\"München\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\":\"Zürich\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>")},
	"kimi_k2":       {"<|tool_calls_section_begin|> <think>", think("<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\":\"München\"}<|tool_call_end|><|tool_call_begin|>functions.weather:1<|tool_call_argument_begin|>{\"city\":\"Zürich\"}<|tool_call_end|><|tool_calls_section_end|>")},
	"mistral":       {"[TOOL_CALLS] [THINK]", "[THINK]" + thought + "[/THINK]" + moment + "[TOOL_CALLS]weather[ARGS]{\"city\":\"München\"}[TOOL_CALLS]weather[ARGS]{\"city\":\"Zürich\"}"},
	"nemotron_deci": {"<TOOLCALL> <think>", think("<TOOLCALL>[{\"name\": \"weather\", \"arguments\": {\"city\":\"München\"}}, {\"name\": \"weather\", \"arguments\": {\"city\":\"Zürich\"}}]</TOOLCALL>")},
	"jamba":         {"<tool_calls> <think>", think("<tool_calls>[{\"name\": \"weather\", \"arguments\": {\"city\":\"München\"}}, {\"name\": \"weather\", \"arguments\": {\"city\":\"Zürich\"}}]</tool_calls>")},
	"llama3_json":   {"<|python_tag|> <think>", think("<|python_tag|>{\"name\": \"weather\", \"parameters\": {\"city\":\"München\"}}; {\"name\": \"weather\", \"parameters\": {\"city\":\"Zürich\"}}")},
	"pythonic":      {"<|python_start|> <think>", think("[weather(city=\"München\"), weather(city='Zürich')]")},
	"gemma4":        {"<|tool_call>call: <|channel>", "<|channel>thought\n" + thought + "<channel|>" + moment + "<|tool_call>call:weather{city:<|\"|>München<|\"|>}<tool_call|><|tool_call>call:weather{city:<|\"|>Zürich<|\"|>}<tool_call|>"},
	"harmony":       {"<|start|> <|channel|> <|message|>", "<|channel|>analysis<|message|>" + thought + "<|end|><|start|>assistant<|channel|>commentary<|message|>" + moment + "<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\":\"München\"}<|call|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\":\"Zürich\"}<|call|>"},
	"inkling":       {"<|content_invoke_tool_json|>", "<|content_thinking|>" + thought + "<|end_message|><|message_model|><|content_text|>" + moment + "<|end_message|><|message_model|>weather<|content_invoke_tool_json|>{\"name\":\"weather\",\"args\":{\"city\":\"München\"}}<|end_message|><|message_model|>weather<|content_invoke_tool_json|>{\"name\":\"weather\",\"args\":{\"city\":\"Zürich\"}}<|end_message|>"},
	"muse":          {"<atem:invoke", " to=self<|message|>" + thought + "<|eom|><|start|>assistant to=user<|message|>" + moment + "<|eom|><|start|>assistant to=weather<|message|><atem:function_calls>\n<atem:invoke name=\"weather\">\n<atem:parameter name=\"city\">München</atem:parameter>\n</atem:invoke>\n<atem:invoke name=\"weather\">\n<atem:parameter name=\"city\">Zürich</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eot|>"},
	"minimax_m3":    {"]<]minimax[>[<tool_call> <mm:think>", "<mm:think>" + thought + "</mm:think>" + moment + strings.ReplaceAll("N<tool_call>\nN<invoke name=\"weather\">N<city>MünchenN</city>N</invoke>\nN<invoke name=\"weather\">N<city>ZürichN</city>N</invoke>\nN</tool_call>", "N<", "]<]minimax[>[<")},
	"kimi_k3":       {"<|open|>think<|sep|> <|close|>", "<|open|>think<|sep|>" + thought + "<|close|>think<|sep|><|open|>response<|sep|>" + moment + "<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool=\"weather\" index=\"1\"<|sep|><|open|>argument key=\"city\" type=\"string\"<|sep|>München<|close|>argument<|sep|><|close|>call<|sep|><|open|>call tool=\"weather\" index=\"2\"<|sep|><|open|>argument key=\"city\" type=\"string\"<|sep|>Zürich<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>"},
}

const (
	thought = "Look ✨ at 東京 first."
	moment  = "One moment, 👩‍💻 please."
)

// think is an answer of the families that think between <think> and </think>.
func think(calls string) string {
	return "<think>\n" + thought + "\n</think>\n\n" + moment + calls
}

// said is what all of them say.
var said = []string{"thinks " + thought, "says " + moment, `calls weather {"city":"München"}`, `calls weather {"city":"Zürich"}`, "ends for tools"}

// 1 and 2, for every family and every API: the unary answer and the stream,
// however it is cut, say the same, and nothing of the family's own.
func TestEveryFamilyByEveryAPI(t *testing.T) {
	function := object{"name": "weather", "parameters": object{"type": "object", "properties": object{"city": object{"type": "string"}}}}
	apis := map[string]struct {
		path string
		body object
		read func(t testing.TB, answer object) []string
		fold func(t testing.TB, s transcript) object
	}{
		"chat": {
			chatRoute,
			object{"messages": []any{object{"role": "user", "content": "Go."}}, "tools": []any{object{"type": "function", "function": function}}},
			readChat, func(t testing.TB, s transcript) object { return s.folded(t) },
		},
		"messages": {
			"/v1/messages", object{
				"max_tokens": 4000, "thinking": object{"type": "enabled", "budget_tokens": 2000}, "messages": []any{object{"role": "user", "content": "Go."}},
				"tools": []any{object{"name": "weather", "input_schema": function["parameters"]}},
			}, readMessage, foldMessage,
		},
		"responses": {
			responsesRoute,
			object{"input": "Go.", "tools": []any{object{"type": "function", "name": "weather", "parameters": function["parameters"]}}},
			readResponse, func(t testing.TB, s transcript) object { return s.chunks[len(s.chunks)-1]["response"].(object) },
		},
	}
	for family, w := range writings {
		for _, pace := range []int{1, 3, 1000} {
			emit, err := json.Marshal(w.emit)
			check(t, err)
			h := build(t, plan{
				workers: 1, script: fmt.Sprintf("default: {emit: %s, pace: {tokens_per_delta: %d}}", emit, pace),
				template: func(s string) string { return s + "{#- " + w.shows + " -#}" },
			})
			for api, a := range apis {
				t.Run(fmt.Sprintf("%s/%s/%d", family, api, pace), func(t *testing.T) {
					body := object{"model": demo.Name}
					maps.Copy(body, a.body)
					if diff := cmp.Diff(said, a.read(t, h.unary(t, a.path, body))); diff != "" {
						t.Errorf("unary (-want +got):\n%s", diff)
					}
					if api != "chat" {
						body["stream_options"] = object{}
					}
					if diff := cmp.Diff(said, a.read(t, a.fold(t, h.stream(t, a.path, body)))); diff != "" {
						t.Errorf("streamed (-want +got):\n%s", diff)
					}
				})
			}
			h.idle(t)
		}
	}
}

func ends(reason any, tools string) string {
	if reason == tools {
		return "ends for tools"
	}
	return fmt.Sprint("ends for ", reason)
}

func readChat(t testing.TB, answer object) (list []string) {
	choice := answer["choices"].([]any)[0].(object)
	message := choice["message"].(object)
	list = append(list, fmt.Sprint("thinks ", message["reasoning_content"]), fmt.Sprint("says ", message["content"]))
	calls, _ := message["tool_calls"].([]any)
	for _, c := range calls {
		f := c.(object)["function"].(object)
		list = append(list, fmt.Sprintf("calls %s %s", f["name"], f["arguments"]))
	}
	return append(list, ends(choice["finish_reason"], "tool_calls"))
}

func readMessage(t testing.TB, answer object) (list []string) {
	for _, b := range answer["content"].([]any) {
		switch b := b.(object); b["type"] {
		case "thinking":
			list = append(list, fmt.Sprint("thinks ", b["thinking"]))
		case "text":
			list = append(list, fmt.Sprint("says ", b["text"]))
		case "tool_use":
			input, err := json.Marshal(b["input"])
			check(t, err)
			list = append(list, fmt.Sprintf("calls %s %s", b["name"], input))
		default:
			list = append(list, fmt.Sprint(b))
		}
	}
	return append(list, ends(answer["stop_reason"], "tool_use"))
}

// foldMessage puts the events of a message together.
func foldMessage(t testing.TB, s transcript) object {
	t.Helper()
	var blocks []any
	var reason any
	for _, e := range s.chunks {
		switch e["type"] {
		case "content_block_start":
			blocks = append(blocks, e["content_block"])
		case "content_block_delta":
			block, delta := blocks[int(e["index"].(float64))].(object), e["delta"].(object)
			for _, key := range []string{"text", "thinking", "partial_json"} {
				if text, ok := delta[key].(string); ok {
					before, _ := block[key].(string)
					block[key] = before + text
				}
			}
		case "content_block_stop":
			block := blocks[int(e["index"].(float64))].(object)
			if raw, ok := block["partial_json"].(string); ok {
				var input any
				check(t, json.Unmarshal([]byte(raw), &input))
				block["input"] = input
			}
		case "message_delta":
			reason = e["delta"].(object)["stop_reason"]
		}
	}
	return object{"content": blocks, "stop_reason": reason}
}

func readResponse(t testing.TB, answer object) (list []string) {
	text := func(item object, key string) (s string) {
		parts, _ := item[key].([]any)
		for _, p := range parts {
			s += p.(object)["text"].(string)
		}
		return s
	}
	called := false
	for _, v := range answer["output"].([]any) {
		switch item := v.(object); item["type"] {
		case "reasoning":
			list = append(list, "thinks "+text(item, "content")+text(item, "summary"))
		case "message":
			list = append(list, "says "+text(item, "content"))
		case "function_call":
			called = true
			list = append(list, fmt.Sprintf("calls %s %s", item["name"], item["arguments"]))
		default:
			list = append(list, fmt.Sprint(item))
		}
	}
	if called && answer["status"] == "completed" {
		return append(list, "ends for tools")
	}
	return append(list, fmt.Sprint("ends for ", answer["status"]))
}
