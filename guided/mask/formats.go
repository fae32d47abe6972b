package mask

import (
	"maps"
	"slices"
)

// Parts of formats. Leap seconds are left out, and so is the 29th of February of
// years that have none.
const (
	day = `(\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))` +
		`|(\d\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)`
	hour     = `([01]\d|2[0-3]):[0-5]\d`
	clock    = hour + `:[0-5]\d(\.\d{1,9})?(Z|[+-]` + hour + `)`
	octet    = `(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
	label    = `[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?`
	hostname = label + `(\.` + label + `){0,4}`
	atom     = `[A-Za-z0-9_%+-]{1,20}`
)

// formats are the formats of strings as patterns of RE2, for whole texts. What they
// match keeps the format; not all that keeps it is written: hosts and addresses
// are short, and in ASCII.
var formats = map[string]string{
	"date":          day,
	"time":          clock,
	"date-time":     day + `T` + clock,
	"duration":      `P(\d{1,9}W|(\d{1,9}Y(\d{1,9}M(\d{1,9}D)?)?|\d{1,9}M(\d{1,9}D)?|\d{1,9}D)(T(` + span3 + `))?|T(` + span3 + `))`,
	"uuid":          `[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`,
	"email":         atom + `(\.` + atom + `){0,2}@` + label + `(\.` + label + `){1,3}`,
	"hostname":      hostname,
	"ipv4":          octet + `(\.` + octet + `){3}`,
	"ipv6":          `([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}`,
	"uri":           address,
	"uri-reference": address,
	"json-pointer":  `(/([^/~]|~[01])*)*`,
}

const (
	span3   = `\d{1,9}H(\d{1,9}M(\d{1,9}S)?)?|\d{1,9}M(\d{1,9}S)?|\d{1,9}S`
	address = `https?://` + hostname + `(:[1-9]\d{1,3})?(/[A-Za-z0-9._~!$&'()*+,;=:@-]*)*(\?[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?(#[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?`
)

var formatNames = slices.Sorted(maps.Keys(formats))
