package mask

// What JSON is made of. Blanks are bounded, so that a model which has nothing to
// say cannot go on with them for ever: one space, or one new line with an
// indentation, and in front of members, items and closing brackets alone. The value
// has none before and behind it.
var (
	space = option(lit(" "))
	blank = option(alt(lit(" "), seq(lit("\n"), alt(repeat(lit(" "), 0, 40), repeat(lit("\t"), 1, 10)))))

	digit    = span('0', '9')
	hexDigit = alt(digit, span('a', 'f'), span('A', 'F'))

	// Numbers have as many digits as fit a 64-bit integer, and an exponent of two.
	wholeNumber = alt(lit("0"), seq(span('1', '9'), repeat(digit, 0, maxDigits-1)))
	fraction    = seq(lit("."), repeat(digit, 1, maxDigits))
	exponent    = seq(anyOf("eE"), option(anyOf("+-")), repeat(digit, 1, 2))
	integer     = seq(option(lit("-")), wholeNumber)
	number      = seq(integer, option(fraction), option(exponent))

	// stringChar is one character of a string in any way in which it may be written.
	stringChar = alt(
		quotedRaw,
		seq(lit(`\`), anyOf(`"\/bfnrt`)),
		seq(lit(`\u`), alt(
			seq(alt(span('0', '9'), anyOf("abcefABCEF")), repeat(hexDigit, 3, 3)),
			seq(anyOf("dD"), span('0', '7'), repeat(hexDigit, 2, 2)),
			seq(anyOf("dD"), anyOf("89abAB"), repeat(hexDigit, 2, 2), lit(`\u`), anyOf("dD"), anyOf("cdefCDEF"), repeat(hexDigit, 2, 2)),
		)),
	)
	quotedRaw = alt(append(utf8Range(' ', '"'-1), append(utf8Range('"'+1, '\\'-1), utf8Range('\\'+1, 0x10ffff)...)...)...)

	anyString = stringOf(star(stringChar))
)

const maxDigits = 20

// stringOf is a string with some inside.
func stringOf(inside *expr) *expr { return frame(seq(lit(`"`), inside, lit(`"`))) }

// anything adds the rule for any value.
func anything(r *rules) *expr {
	rule := r.reserve()
	value := call(rule)
	(*r)[rule] = alt(anyString, frame(number), lit("true"), lit("false"), lit("null"),
		array(value, 0, noLimit), mapping(anyString, value, 0, noLimit))
	return value
}

// array is an array of so many items.
func array(item *expr, low, high int) *expr {
	return frame(seq(lit("["), blank, several(item, 0, low, high, "]")))
}

// mapping is an object of so many members with such names and values.
func mapping(name, value *expr, low, high int) *expr {
	member := seq(name, lit(":"), space, value)
	return frame(seq(lit("{"), blank, several(member, 0, low, high, "}")))
}

// several is a list behind its first n items, with what closes it. All items of the
// list are between low and high.
func several(item *expr, n, low, high int, closing string) *expr {
	if high != noLimit && n >= high {
		item = void
	}
	least, more := max(low-n, 0), noLimit
	if high != noLimit {
		more = max(high-n, 0)
	}
	further := seq(lit(","), blank, item)
	if n > 0 {
		return seq(repeat(further, least, more), blank, lit(closing))
	}
	if high != noLimit {
		more = max(more-1, 0)
	}
	some := seq(item, repeat(further, max(least-1, 0), more), blank)
	if least == 0 {
		some = option(some)
	}
	return seq(some, lit(closing))
}

// separator stands in front of an item with n before it.
func separator(n int) *expr {
	if n == 0 {
		return empty
	}
	return seq(lit(","), blank)
}
