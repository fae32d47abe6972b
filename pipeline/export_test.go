package pipeline

// For tests from outside.
var WithoutPreamble = withoutPreamble
