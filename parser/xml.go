package parser

// xmlGrammars are the grammars whose arguments are written in tags.
var xmlGrammars = map[string]*callGrammar{}
