package chattemplate_test

import (
	"fmt"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
)

// The template knows no late system turns and no field for thoughts; the
// conversation has both.
func Example() {
	tmpl, err := chattemplate.Compile(`
{%- for m in messages %}
    {%- if m.role == 'system' and not loop.first %}{{ raise_exception('system must be first') }}{% endif %}
    {{- '<|' ~ m.role ~ '|>' ~ m.content ~ '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}`, chattemplate.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	say := func(role chat.Role, blocks ...chat.Block) chat.Turn { return chat.Turn{Role: role, Blocks: blocks} }
	prompt, err := tmpl.Render(&chat.Request{Turns: []chat.Turn{
		say(chat.RoleUser, chat.Block{Kind: chat.Text, Text: "6 times 7?"}),
		say(chat.RoleAssistant, chat.Block{Kind: chat.Thought, Text: "easy"}, chat.Block{Kind: chat.Text, Text: "42"}),
		say(chat.RoleSystem, chat.Block{Kind: chat.Text, Text: "Be brief."}),
		say(chat.RoleUser, chat.Block{Kind: chat.Text, Text: "Sure?"}),
	}}, chattemplate.Options{AddGenerationPrompt: true})
	fmt.Println(prompt, err)
	// Output:
	// <|user|>6 times 7?
	// <|assistant|><think>easy</think>42
	// <|user|><system>
	// Be brief.
	// </system>
	// <|user|>Sure?
	// <|assistant|> <nil>
}
