package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// maxBits bounds the size of an integer that arithmetic may produce.
const maxBits = 1 << 16

func isNumber(v Value) bool {
	switch v.(type) {
	case int, float64, bool, *big.Int, *decimal:
		return true
	}
	return false
}

// small returns the int that v is, if it is one; bools count, as in Python.
func small(v Value) (int, bool) {
	switch v := v.(type) {
	case int:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// whole returns v as a big integer, if it is an integer.
func whole(v Value) (*big.Int, bool) {
	if b, ok := v.(*big.Int); ok {
		return b, true
	}
	if n, ok := small(v); ok {
		return big.NewInt(int64(n)), true
	}
	return nil, false
}

func toFloat(v Value) float64 {
	switch v := v.(type) {
	case float64:
		return v
	case *decimal:
		return v.Float
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		return f
	}
	n, _ := small(v)
	return float64(n)
}

func shrink(b *big.Int) Value {
	if b.IsInt64() {
		return int(b.Int64())
	}
	return b
}

func compareNumbers(a, b Value) int {
	if x, ok := small(a); ok {
		if y, ok := small(b); ok {
			switch {
			case x < y:
				return -1
			case x > y:
				return 1
			}
			return 0
		}
	}
	x, xok := whole(a)
	y, yok := whole(b)
	if xok && yok {
		return x.Cmp(y)
	}
	f, g := toFloat(a), toFloat(b)
	const exact = 1 << 53 // up to here every integer has its own float
	if xok && finite(g) && math.Abs(f) >= exact {
		return new(big.Float).SetInt(x).Cmp(big.NewFloat(g))
	}
	if yok && finite(f) && math.Abs(g) >= exact {
		return big.NewFloat(f).Cmp(new(big.Float).SetInt(y))
	}
	switch {
	case f < g:
		return -1
	case f == g:
		return 0
	case f > g:
		return 1
	}
	return 2 // NaN: neither
}

// arith computes a op b for numbers; the caller has checked that they are.
func arith(op string, a, b Value) (Value, error) {
	x, xok := small(a)
	y, yok := small(b)
	if xok && yok {
		if v, ok := smallArith(op, x, y); ok {
			return v, nil
		}
	}
	p, pok := whole(a)
	q, qok := whole(b)
	if pok && qok && op != "/" {
		return bigArith(op, p, q)
	}
	return floatArith(op, toFloat(a), toFloat(b))
}

func smallArith(op string, x, y int) (Value, bool) {
	switch op {
	case "+":
		if s := x + y; (s > x) == (y > 0) {
			return s, true
		}
	case "-":
		if s := x - y; (s < x) == (y > 0) {
			return s, true
		}
	case "*":
		if x == 0 || y == 0 {
			return 0, true
		}
		if p := x * y; p/y == x && (x != -1 || y != math.MinInt) && (y != -1 || x != math.MinInt) {
			return p, true
		}
	case "//":
		if y != 0 && y != -1 {
			q := x / y
			if x%y != 0 && (x < 0) != (y < 0) {
				q--
			}
			return q, true
		}
	case "%":
		if y != 0 && y != -1 {
			r := x % y
			if r != 0 && (r < 0) != (y < 0) {
				r += y
			}
			return r, true
		}
	}
	return nil, false
}

func bigArith(op string, x, y *big.Int) (Value, error) {
	z := new(big.Int)
	switch op {
	case "+":
		return shrink(z.Add(x, y)), nil
	case "-":
		return shrink(z.Sub(x, y)), nil
	case "*":
		if x.BitLen()+y.BitLen() > maxBits {
			return nil, fail(LimitError, "integer too large")
		}
		return shrink(z.Mul(x, y)), nil
	case "//", "%":
		if y.Sign() == 0 {
			return nil, fail(ValueError, "integer division or modulo by zero")
		}
		q, r := z.QuoRem(x, y, new(big.Int))
		if r.Sign() != 0 && r.Sign() != y.Sign() {
			q.Sub(q, big.NewInt(1))
			r.Add(r, y)
		}
		if op == "%" {
			return shrink(r), nil
		}
		return shrink(q), nil
	default: // **
		if y.Sign() < 0 {
			return floatArith(op, toFloat(x), toFloat(y))
		}
		if x.BitLen() > 1 && (!y.IsInt64() || y.Int64() > maxBits || int64(x.BitLen())*y.Int64() > maxBits) {
			return nil, fail(LimitError, "integer too large")
		}
		if x.BitLen() <= 1 && y.BitLen() > 2 { // of -1, 0 and 1 only the parity counts
			y = big.NewInt(2 + int64(y.Bit(0)))
		}
		return shrink(z.Exp(x, y, nil)), nil
	}
}

func floatArith(op string, x, y float64) (Value, error) {
	switch op {
	case "+":
		return x + y, nil
	case "-":
		return x - y, nil
	case "*":
		return x * y, nil
	case "**":
		if x == 0 && y < 0 {
			return nil, fail(ValueError, "0.0 cannot be raised to a negative power")
		}
		p := math.Pow(x, y)
		if finite(x) && finite(y) && !finite(p) {
			return nil, fail(ValueError, "result of ** out of range")
		}
		return p, nil
	}
	if y == 0 {
		return nil, fail(ValueError, "division by zero")
	}
	if op == "/" {
		return x / y, nil
	}
	r := math.Mod(x, y)
	if r != 0 && (r < 0) != (y < 0) {
		r += y
	}
	if op == "%" {
		if r == 0 {
			r = math.Copysign(0, y)
		}
		return r, nil
	}
	return math.Floor((x - r) / y), nil
}

func finite(f float64) bool { return !math.IsInf(f, 0) && !math.IsNaN(f) }

func negate(v Value) Value {
	switch v := v.(type) {
	case float64:
		return -v
	case *decimal:
		return -v.Float
	}
	b, _ := whole(v)
	return shrink(new(big.Int).Neg(b))
}

// appendFloat prints f as Python's repr does: the shortest spelling that reads
// back as f, with an exponent from 1e16 on and below 1e-4.
func appendFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "nan"...)
	case math.IsInf(f, 1):
		return append(dst, "inf"...)
	case math.IsInf(f, -1):
		return append(dst, "-inf"...)
	}
	start := len(dst)
	if abs := math.Abs(f); abs != 0 && (abs < 1e-4 || abs >= 1e16) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	for _, c := range dst[start:] {
		if c == '.' {
			return dst
		}
	}
	return append(dst, '.', '0')
}

// integer reads the spelling of an integer in any base that Python's source
// code knows, or in the given one.
func integer(s string, base int) (Value, bool) {
	s = strings.ReplaceAll(s, "_", "")
	if n, err := strconv.ParseInt(s, base, 64); err == nil {
		return int(n), true
	}
	if len(s) > maxBits/3 {
		return nil, false
	}
	b, ok := new(big.Int).SetString(s, base)
	if !ok {
		return nil, false
	}
	return shrink(b), true
}
