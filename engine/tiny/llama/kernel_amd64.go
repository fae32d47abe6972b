package llama

var fastest = &plain
