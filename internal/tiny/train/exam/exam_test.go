package exam_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/internal/tiny/train/exam"
	"github.com/dynago/dynago/internal/tiny/train/talk"
)

func ExampleReport() {
	r := exam.Report{}
	r.Add(talk.Sum, true)
	r.Add(talk.Call, true)
	r.Add(talk.Call, false)
	r.Add(talk.Call, true)
	fmt.Print(r)
	// Output:
	// sum                  100.0 % of 1
	// call                  66.7 % of 3
	// all                   75.0 %
}

func TestRight(t *testing.T) {
	const called = "<think>\nget_age fits.\n</think>\n\n<tool_call>\n{\"name\": \"get_age\", \"arguments\": {\"of\": \"Ada\", \"n\": 3}}\n</tool_call>"
	call := exam.Question{Task: talk.Call, Want: called}
	sum := exam.Question{Task: talk.Sum, Want: "4 + 8 = 12", Key: "12"}
	fact := exam.Question{Task: talk.Lookup, Want: "The age of Ada is 12 years.", Key: "12 years"}
	words := exam.Question{Task: talk.Say, Want: "good day"}
	for _, tc := range []struct {
		q    exam.Question
		said string
		want bool
	}{
		{call, called, true},
		{call, "<tool_call>{\"arguments\":{\"n\":3.0,\"of\":\"Ada\"},\"name\":\"get_age\"}</tool_call>", true},
		{call, strings.Replace(called, "Ada", "Eva", 1), false},
		{call, strings.Replace(called, "3", `"3"`, 1), false},
		{call, strings.Replace(called, "get_age\",", "get_name\",", 1), false},
		{call, called + called[strings.Index(called, "<tool_call>"):], false},
		{call, strings.TrimSuffix(called, "</tool_call>"), false},
		{call, "Three.", false},
		{sum, "4 + 8 = 12", true},
		{sum, "<think>\n4 + 8 = 13\n</think>\n\nThat makes 12.", true},
		{sum, "4 + 8 = 13", false},
		{sum, "<think>\n12\n</think>\n\nSorry.", false},
		{sum, called, false},
		{fact, "It is 12 years, I think.", true},
		{fact, "It is 13 years.", false},
		{words, "good day", true},
		{words, "<think>\nHm.\n</think>\n\ngood day", true},
		{words, "good day!", false},
	} {
		if got := tc.q.Right(tc.said); got != tc.want {
			t.Errorf("%s: %q for %q is right: %v, want %v", tc.q.Task, tc.said, tc.q.Want, got, tc.want)
		}
	}
}

// The answers that the conversations have are right, and nothing of one question
// answers another.
func TestQuestions(t *testing.T) {
	source, err := demo.File("chat_template.jinja")
	if err != nil {
		t.Fatal(err)
	}
	template, err := chattemplate.Compile(string(source), chattemplate.Config{EOS: "<|im_end|>"})
	if err != nil {
		t.Fatal(err)
	}
	talks, n := talk.New(1, true), 0
	for range 300 {
		questions, err := exam.Questions(talks.Next(talk.Course(1)), template)
		if err != nil {
			t.Fatal(err)
		}
		if len(questions) == 0 {
			t.Fatal("a conversation without a question")
		}
		for _, q := range questions {
			n++
			if !q.Right(q.Want) {
				t.Errorf("%s: %q is not right", q.Task, q.Want)
			}
			if !strings.HasSuffix(q.Prompt, "<|im_start|>assistant\n") && !strings.HasSuffix(q.Prompt, "</think>\n\n") {
				t.Errorf("a prompt ends with %q", q.Prompt[len(q.Prompt)-40:])
			}
			if q.Right("") {
				t.Errorf("%s: nothing is right for %q", q.Task, q.Want)
			}
		}
	}
	if n < 400 {
		t.Errorf("%d questions in 300 conversations", n)
	}
}
