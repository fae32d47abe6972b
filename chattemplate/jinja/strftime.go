package jinja

import (
	"fmt"
	"strings"
	"time"
)

// strftime formats t with C's conversion codes, in the C locale. Codes that C
// does not know stay as they are.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		code, plain := format[i], false
		if code == '-' && i+1 < len(format) { // GNU: no leading zero or blank
			i++
			code, plain = format[i], true
		}
		s := conversion(t, code)
		if plain {
			if s = strings.TrimLeft(s, "0 "); s == "" {
				s = "0"
			}
		}
		b.WriteString(s)
	}
	return b.String()
}

func conversion(t time.Time, code byte) string {
	isoYear, isoWeek := t.ISOWeek()
	switch code {
	case 'Y':
		return fmt.Sprint(t.Year())
	case 'C':
		return fmt.Sprintf("%02d", t.Year()/100)
	case 'y':
		return fmt.Sprintf("%02d", t.Year()%100)
	case 'm':
		return t.Format("01")
	case 'd':
		return t.Format("02")
	case 'e':
		return t.Format("_2")
	case 'B':
		return t.Format("January")
	case 'b', 'h':
		return t.Format("Jan")
	case 'A':
		return t.Format("Monday")
	case 'a':
		return t.Format("Mon")
	case 'H':
		return t.Format("15")
	case 'k':
		return fmt.Sprintf("%2d", t.Hour())
	case 'I':
		return t.Format("03")
	case 'l':
		return fmt.Sprintf("%2d", (t.Hour()+11)%12+1)
	case 'M':
		return t.Format("04")
	case 'S':
		return t.Format("05")
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000)
	case 'p':
		return t.Format("PM")
	case 'P':
		return t.Format("pm")
	case 'j':
		return fmt.Sprintf("%03d", t.YearDay())
	case 'w':
		return fmt.Sprint(int(t.Weekday()))
	case 'u':
		return fmt.Sprint((int(t.Weekday())+6)%7 + 1)
	case 'U':
		return fmt.Sprintf("%02d", (t.YearDay()+6-int(t.Weekday()))/7)
	case 'W':
		return fmt.Sprintf("%02d", (t.YearDay()+6-(int(t.Weekday())+6)%7)/7)
	case 'G':
		return fmt.Sprint(isoYear)
	case 'V':
		return fmt.Sprintf("%02d", isoWeek)
	case 'D', 'x':
		return t.Format("01/02/06")
	case 'F':
		return t.Format("2006-01-02")
	case 'T', 'X':
		return t.Format("15:04:05")
	case 'R':
		return t.Format("15:04")
	case 'r':
		return t.Format("03:04:05 PM")
	case 'c':
		return t.Format("Mon Jan _2 15:04:05 2006")
	case 's':
		return fmt.Sprint(t.Unix())
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case '%':
		return "%"
	case 'z', 'Z':
		return "" // Python's datetime.now() knows no zone
	}
	return "%" + string(code)
}
