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
	if high == 0 {
		return bracketed("[", empty, true, "]")
	}
	more := noLimit
	if high > 0 {
		more = high - 1
	}
	return bracketed("[", seq(item, repeat(seq(lit(","), blank, item), max(low-1, 0), more)), low == 0, "]")
}

// mapping is an object of so many members with such names and values.
func mapping(name, value *expr, low, high int) *expr {
	if high == 0 {
		return bracketed("{", empty, true, "}")
	}
	more := noLimit
	if high > 0 {
		more = high - 1
	}
	member := seq(name, lit(":"), space, value)
	return bracketed("{", seq(member, repeat(seq(lit(","), blank, member), max(low-1, 0), more)), low == 0, "}")
}

// bracketed is what stands in brackets, or, if that may be, nothing.
func bracketed(left string, inside *expr, orNone bool, right string) *expr {
	content := seq(inside, blank)
	if inside.op == opEmpty {
		content = empty
	} else if orNone {
		content = option(content)
	}
	return frame(seq(lit(left), blank, content, lit(right)))
}
