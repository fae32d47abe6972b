package main

import (
	"fmt"
	"os"

	"github.com/dynago/dynago/openai"
)

// template reads the operator's template of requests, nil if there is none.
func (s *requestSettings) template() (*openai.RequestTemplate, error) {
	if s.Template == "" {
		return nil, nil
	}
	text, err := os.ReadFile(s.Template)
	if err != nil {
		return nil, fmt.Errorf("--request-template: %w", err)
	}
	t, err := openai.DecodeRequestTemplate(text)
	if err != nil {
		return nil, fmt.Errorf("--request-template %s: %w", s.Template, err)
	}
	return t, nil
}
