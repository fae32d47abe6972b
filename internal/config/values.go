package config

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// boolean reads true and false in all the words that are used for them.
type boolean struct{}

// IsBool lets a flag stand without a value.
func (boolean) IsBool() bool { return true }

// Decode implements kong.Mapper.
func (boolean) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	if ctx.Scan.Peek().Type != kong.FlagValueToken {
		target.SetBool(true)
		return nil
	}
	word := ctx.Scan.Pop().String()
	switch strings.ToLower(strings.TrimSpace(word)) {
	case "1", "true", "yes", "on":
		target.SetBool(true)
	case "0", "false", "no", "off", "":
		target.SetBool(false)
	default:
		if ctx.Value.Tag.Has("lax") && inVariable(ctx, target) {
			target.SetBool(false)
			return nil
		}
		return fmt.Errorf("%q: want true, false, yes, no, on, off, 1 or 0", word)
	}
	return nil
}

// inVariable says whether a value comes from the environment. Kong reads such ones,
// and defaults, right into the setting; those of flags and files are read apart from it,
// and put there at the end.
func inVariable(ctx *kong.DecodeContext, target reflect.Value) bool {
	return target.Addr().Pointer() == ctx.Value.Target.Addr().Pointer()
}

// text reads a string, or one of a few.
func text(ctx *kong.DecodeContext, target reflect.Value) error {
	s, err := pop(ctx)
	if err != nil {
		return err
	}
	if choice := ctx.Value.Tag.Get("choice"); choice != "" {
		if s, err = choose(s, choice, ctx.Value.Tag.Get("also")); err != nil {
			return err
		}
	}
	target.SetString(s)
	return nil
}

// choose finds s among choices, whatever hyphens it is spelled with.
func choose(s, choices, also string) (string, error) {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "-")) }
	names := strings.Split(choices, ",")
	for _, name := range names {
		if plain(name) == plain(s) {
			return name, nil
		}
	}
	for pair := range strings.SplitSeq(also, ",") {
		if alias, name, ok := strings.Cut(pair, "="); ok && plain(alias) == plain(s) {
			return name, nil
		}
	}
	return "", fmt.Errorf("%q: want %s", s, list(names))
}

// list writes "a, b or c".
func list(names []string) string {
	last := len(names) - 1
	if last <= 0 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// integer reads a whole number within its range.
func integer(ctx *kong.DecodeContext, target reflect.Value) error {
	s, err := pop(ctx)
	if err != nil {
		return err
	}
	want := cmp.Or(ctx.Value.Tag.Get("range"), "a whole number")
	low, high, bounded := bounds(ctx.Value.Tag.Get("range"))
	if target.Kind() == reflect.Uint64 {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil || bounded && (float64(n) < low || float64(n) > high) {
			return fmt.Errorf("%s: want %s", s, want)
		}
		target.SetUint(n)
		return nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || bounded && (float64(n) < low || float64(n) > high) {
		return fmt.Errorf("%s: want %s", s, want)
	}
	target.SetInt(n)
	return nil
}

// float reads a number within its range.
func float(ctx *kong.DecodeContext, target reflect.Value) error {
	s, err := pop(ctx)
	if err != nil {
		return err
	}
	x, err := strconv.ParseFloat(s, 64)
	low, high, bounded := bounds(ctx.Value.Tag.Get("range"))
	// A number that is none compares false with everything.
	if err != nil || x-x != 0 || bounded && !(x >= low && x <= high) {
		return fmt.Errorf("%s: want %s", s, cmp.Or(ctx.Value.Tag.Get("range"), "a number"))
	}
	target.SetFloat(x)
	return nil
}

// duration reads 30s, 1m30s, or a bare number of the setting's unit.
func duration(ctx *kong.DecodeContext, target reflect.Value) error {
	s, err := pop(ctx)
	if err != nil {
		return err
	}
	unit := cmp.Or(ctx.Value.Tag.Get("unit"), "s")
	d, err := time.ParseDuration(s)
	if err != nil {
		if _, bare := strconv.ParseFloat(s, 64); bare == nil {
			d, err = time.ParseDuration(s + unit)
		}
	}
	if err != nil || d < 0 {
		return fmt.Errorf("%q: want a duration such as 30s or 1m30s, or a number of %s", s, map[string]string{"s": "seconds", "ms": "milliseconds"}[unit])
	}
	target.SetInt(int64(d))
	return nil
}

// bounds reads a range. A missing bound is no bound.
func bounds(r string) (low, high float64, ok bool) {
	if r == "" {
		return 0, 0, false
	}
	from, to, _ := strings.Cut(r, "..")
	low, high = -1e300, 1e300
	if from != "" {
		low, _ = strconv.ParseFloat(from, 64)
	}
	if to != "" {
		high, _ = strconv.ParseFloat(to, 64)
	}
	return low, high, true
}

func pop(ctx *kong.DecodeContext) (string, error) {
	t, err := ctx.Scan.PopValue("value")
	if err != nil {
		return "", err
	}
	return t.String(), nil
}
