package remote

import (
	"encoding/base64"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
)

// Sources of media, as chat names them.
const (
	sourceBytes = "base64"
	sourceURL   = "url"
	sourceFile  = "file"
)

// conversationMessage is how a conversation is told.
func conversationMessage(r *chat.Request) (*workerpb.Conversation, error) {
	m := &workerpb.Conversation{
		Api: string(r.API), Model: r.Model, TemplateArgs: r.TemplateArgs, Metadata: r.Metadata,
		ToolChoice: &workerpb.ToolChoice{
			Mode: string(r.ToolChoice.Mode), Names: r.ToolChoice.Names, Parallel: r.ToolChoice.Parallel, Hidden: r.ToolChoice.Hidden,
		},
		Thinking: thinkingMessage(&r.Thinking), Format: outputFormatMessage(&r.Output),
	}
	if !r.Date.IsZero() {
		m.Date = r.Date.Format(time.RFC3339Nano)
	}
	if r.Prompt != nil {
		m.Prompt = &r.Prompt.Text
	}
	var err error
	if m.System, err = blockMessages(r.System); err != nil {
		return nil, err
	}
	for i := range r.Turns {
		t := &r.Turns[i]
		blocks, err := blockMessages(t.Blocks)
		if err != nil {
			return nil, err
		}
		m.Turns = append(m.Turns, &workerpb.Turn{Role: string(t.Role), Name: t.Name, Blocks: blocks, Phase: t.Phase, Raw: t.Raw})
		m.RawPrompt = m.RawPrompt || t.Raw
	}
	for i := range r.Tools {
		m.Tools = append(m.Tools, toolMessage(&r.Tools[i]))
	}
	return m, nil
}

// conversationOf is the inverse.
func conversationOf(m *workerpb.Conversation) *chat.Request {
	r := &chat.Request{
		API: chat.API(m.Api), Model: m.Model, TemplateArgs: raw(m.TemplateArgs), Metadata: m.Metadata,
		ToolChoice: chat.ToolChoice{
			Mode: chat.ToolMode(m.GetToolChoice().GetMode()), Names: m.GetToolChoice().GetNames(), Hidden: m.GetToolChoice().GetHidden(),
		},
		System: blocksOf(m.System), Thinking: thinkingOf(m.Thinking), Output: outputFormatOf(m.Format),
	}
	if m.ToolChoice != nil {
		r.ToolChoice.Parallel = m.ToolChoice.Parallel
	}
	if at, err := time.Parse(time.RFC3339Nano, m.Date); err == nil {
		r.Date = at
	}
	if m.Prompt != nil {
		r.Prompt = &chat.Prompt{Text: *m.Prompt}
	}
	for _, t := range m.Turns {
		r.Turns = append(r.Turns, chat.Turn{
			Role: chat.Role(t.GetRole()), Name: t.GetName(), Blocks: blocksOf(t.GetBlocks()), Phase: t.GetPhase(),
			Raw: t.GetRaw() || m.RawPrompt && len(m.Turns) == 1,
		})
	}
	for _, t := range m.Tools {
		r.Tools = append(r.Tools, toolOf(t))
	}
	return r
}

func blockMessages(blocks []chat.Block) ([]*workerpb.Block, error) {
	var out []*workerpb.Block
	for i := range blocks {
		b := &blocks[i]
		m := &workerpb.Block{Kind: string(b.Kind), Text: b.Text, Opaque: b.Wire, ToolUse: useMessage(b.Use)}
		if b.Media != nil {
			var err error
			if m.Media, err = mediaMessage(b); err != nil {
				return nil, err
			}
		}
		if r := b.Result; r != nil {
			inner, err := blockMessages(r.Blocks)
			if err != nil {
				return nil, err
			}
			m.ToolResult = &workerpb.ToolResult{Id: r.ID, Name: r.Name, IsError: r.IsError, Blocks: inner}
		}
		out = append(out, m)
	}
	return out, nil
}

func blocksOf(list []*workerpb.Block) []chat.Block {
	var out []chat.Block
	for _, m := range list {
		b := chat.Block{Kind: chat.Kind(m.GetKind()), Text: m.GetText(), Wire: raw(m.GetOpaque()), Use: useOf(m.GetToolUse())}
		if m.GetMedia() != nil {
			b.Media = mediaOf(m.Media)
		}
		if r := m.GetToolResult(); r != nil {
			b.Result = &chat.Result{ID: r.Id, Name: r.Name, IsError: r.IsError, Blocks: blocksOf(r.Blocks)}
		}
		if !knownKind(b.Kind) {
			b.Kind = chat.Opaque
		}
		out = append(out, b)
	}
	return out
}

func knownKind(k chat.Kind) bool {
	switch k {
	case chat.Text, chat.Thought, chat.ToolCall, chat.ToolResult, chat.Image, chat.Document, chat.Refusal, chat.ToolReference, chat.Opaque:
		return true
	}
	return false
}

func mediaMessage(b *chat.Block) (*workerpb.Media, error) {
	m := &workerpb.Media{Kind: string(b.Kind), MimeType: b.Media.MediaType, Detail: b.Media.Detail}
	switch b.Media.Source {
	case sourceURL:
		m.Source = &workerpb.Media_Url{Url: b.Media.Data}
	case sourceFile:
		m.Source = &workerpb.Media_File{File: b.Media.Data}
	default:
		data, err := base64.StdEncoding.DecodeString(b.Media.Data)
		if err != nil {
			e := engine.Errorf(engine.InvalidArgument, "%s: the data are no base64: %v", b.Kind, err)
			e.Param = b.Media.Path
			return nil, e
		}
		m.Source = &workerpb.Media_Data{Data: data}
	}
	return m, nil
}

func mediaOf(m *workerpb.Media) *chat.Media {
	c := &chat.Media{MediaType: m.MimeType, Detail: m.Detail}
	switch s := m.Source.(type) {
	case *workerpb.Media_Url:
		c.Source, c.Data = sourceURL, s.Url
	case *workerpb.Media_File:
		c.Source, c.Data = sourceFile, s.File
	case *workerpb.Media_Data:
		c.Source, c.Data = sourceBytes, base64.StdEncoding.EncodeToString(s.Data)
	}
	return c
}

func useMessage(u *chat.ToolUse) *workerpb.ToolUse {
	if u == nil {
		return nil
	}
	return &workerpb.ToolUse{Id: u.ID, NativeId: u.NativeID, Name: u.Name, Namespace: u.Namespace, Kind: string(u.Kind), Arguments: []byte(u.Args)}
}

func useOf(m *workerpb.ToolUse) *chat.ToolUse {
	if m == nil {
		return nil
	}
	return &chat.ToolUse{ID: m.Id, NativeID: m.NativeId, Name: m.Name, Namespace: m.Namespace, Kind: chat.ToolKind(m.Kind), Args: string(m.Arguments)}
}

func toolMessage(t *chat.Tool) *workerpb.Tool {
	m := &workerpb.Tool{
		Kind: string(t.Kind), Name: t.Name, Namespace: t.Namespace, Description: t.Description,
		Schema: t.Schema, Strict: t.Strict, Deferred: t.Deferred,
	}
	if t.Grammar != nil {
		m.GrammarSyntax, m.Grammar = t.Grammar.Syntax, []byte(t.Grammar.Definition)
	}
	return m
}

func toolOf(m *workerpb.Tool) chat.Tool {
	t := chat.Tool{
		Kind: chat.ToolKind(m.Kind), Name: m.Name, Namespace: m.Namespace, Description: m.Description,
		Schema: raw(m.Schema), Strict: m.Strict, Deferred: m.Deferred,
	}
	if m.GrammarSyntax != "" || len(m.Grammar) > 0 {
		t.Grammar = &chat.Grammar{Syntax: m.GrammarSyntax, Definition: string(m.Grammar)}
	}
	return t
}

// Modes of thinking on the wire; empty: nobody said.
const (
	thinkOn       = "enabled"
	thinkAdaptive = "adaptive"
	thinkOff      = "disabled"
)

func thinkingMessage(t *chat.Thinking) *workerpb.Thinking {
	m := &workerpb.Thinking{Effort: t.Effort, Budget: unsigned(t.Budget)}
	switch {
	case t.Adaptive:
		m.Mode = thinkAdaptive
	case t.Enabled != nil && *t.Enabled:
		m.Mode = thinkOn
	case t.Enabled != nil:
		m.Mode = thinkOff
	}
	if t.Keep != nil {
		n := int32(*t.Keep)
		m.Keep = &n
	}
	return m
}

func thinkingOf(m *workerpb.Thinking) chat.Thinking {
	if m == nil {
		return chat.Thinking{}
	}
	t := chat.Thinking{Effort: m.Effort, Budget: signed(m.Budget)}
	on, off := true, false
	switch m.Mode {
	case thinkAdaptive:
		t.Enabled, t.Adaptive = &on, true
	case thinkOn:
		t.Enabled = &on
	case thinkOff:
		t.Enabled = &off
	}
	if m.Keep != nil {
		n := int(*m.Keep)
		t.Keep = &n
	}
	return t
}

func outputFormatMessage(f *chat.OutputFormat) *workerpb.OutputFormat {
	return &workerpb.OutputFormat{Kind: string(f.Kind), Name: f.Name, Schema: f.Schema, Strict: f.Strict, Pattern: f.Pattern, Choices: f.Choices}
}

func outputFormatOf(m *workerpb.OutputFormat) chat.OutputFormat {
	if m == nil {
		return chat.OutputFormat{}
	}
	return chat.OutputFormat{
		Kind: chat.FormatKind(m.Kind), Name: m.Name, Schema: raw(m.Schema), Strict: m.Strict, Pattern: m.Pattern, Choices: m.Choices,
	}
}
