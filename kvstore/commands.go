package kvstore

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

// command is one that clients may give, with its name counted as an argument.
type command struct {
	least, most int  // most 0 = any number
	open        bool // before AUTH
	run         func(c *conn, ctx context.Context, args [][]byte)
}

var commands = map[string]command{
	"PING":   {least: 1, most: 2, run: ping},
	"ECHO":   {least: 2, most: 2, run: func(c *conn, _ context.Context, args [][]byte) { c.out.value(args[0]) }},
	"HELLO":  {least: 1, open: true, run: hello},
	"AUTH":   {least: 2, most: 3, open: true, run: auth},
	"QUIT":   {least: 1, open: true, run: func(c *conn, _ context.Context, _ [][]byte) { c.out.simple("OK"); c.over = true }},
	"CLIENT": {least: 2, run: client},
	"SELECT": {least: 2, most: 2, run: selectDB},

	"SET":    {least: 3, run: set},
	"GET":    {least: 2, most: 2, run: get},
	"MGET":   {least: 2, run: mget},
	"EXISTS": {least: 2, run: exists},
	"STRLEN": {least: 2, most: 2, run: strlen},
	"TYPE":   {least: 2, most: 2, run: typeOf},
	"DEL":    {least: 2, run: del},
	"UNLINK": {least: 2, run: del},

	"SCAN":    {least: 2, run: scan},
	"KEYS":    {least: 2, most: 2, run: keys},
	"DBSIZE":  {least: 1, most: 1, run: dbsize},
	"INFO":    {least: 1, run: info},
	"COMMAND": {least: 1, run: func(c *conn, _ context.Context, _ [][]byte) { c.out.array(0) }},
	"CONFIG":  {least: 2, run: config},

	"KV.RETAIN":  {least: 4, run: kvRetain},
	"KV.SESSION": {least: 3, most: 3, run: kvSession},
	"KV.PREFIX":  {least: 3, run: kvPrefix},
	"KV.STATS":   {least: 1, most: 1, run: kvStats},
}

const syntaxError = "ERR syntax error"

func ping(c *conn, _ context.Context, args [][]byte) {
	if len(args) == 1 {
		c.out.value(args[0])
		return
	}
	c.out.simple("PONG")
}

// hello greets a client, in the version of the protocol that it wants.
func hello(c *conn, _ context.Context, args [][]byte) {
	resp3 := c.out.resp3
	if len(args) > 0 {
		switch v, err := strconv.Atoi(string(args[0])); {
		case err != nil:
			c.out.fail("ERR Protocol version is not an integer or out of range")
			return
		case v != 2 && v != 3:
			c.out.fail("NOPROTO unsupported protocol version: want 2 or 3")
			return
		default:
			resp3 = v == 3
		}
		args = args[1:]
	}
	for len(args) > 0 {
		switch {
		case strings.EqualFold(string(args[0]), "AUTH") && len(args) >= 3:
			if !c.login(string(args[1]), string(args[2])) {
				return
			}
			args = args[3:]
		case strings.EqualFold(string(args[0]), "SETNAME") && len(args) >= 2:
			c.name = string(args[1])
			args = args[2:]
		default:
			c.out.fail(syntaxError)
			return
		}
	}
	if c.sp == nil {
		c.out.fail("NOAUTH HELLO must be called with the client already authenticated, or with AUTH")
		return
	}
	c.out.resp3 = resp3
	c.out.dictionary(7)
	for _, s := range []string{"server", "redis", "version", redisVersion} {
		c.out.bulk(s)
	}
	c.out.bulk("proto")
	c.out.integer(map[bool]int64{false: 2, true: 3}[resp3])
	c.out.bulk("id")
	c.out.integer(c.id)
	for _, s := range []string{"mode", "standalone", "role", "master", "modules"} {
		c.out.bulk(s)
	}
	c.out.array(0)
}

func auth(c *conn, _ context.Context, args [][]byte) {
	name := ""
	if len(args) == 2 {
		name = string(args[0])
	}
	if c.login(name, string(args[len(args)-1])) {
		c.out.simple("OK")
	}
}

// mostRefused is how many wrong tokens end a connection.
const mostRefused = 10

// login opens the namespace of a token, or says that it does not.
func (c *conn) login(name, token string) bool {
	sp := c.s.admit(name, token)
	if sp == nil {
		c.refused++
		c.over = c.refused >= mostRefused
		c.out.fail("WRONGPASS invalid username-password pair or user is disabled.")
		return false
	}
	c.sp, c.in.stranger = sp, false
	return true
}

func client(c *conn, _ context.Context, args [][]byte) {
	switch sub := strings.ToUpper(string(args[0])); {
	case sub == "SETNAME" && len(args) == 2:
		c.name = string(args[1])
		c.out.simple("OK")
	case sub == "SETINFO" && len(args) == 3:
		c.out.simple("OK")
	case sub == "GETNAME" && len(args) == 1:
		c.out.bulk(c.name)
	case sub == "ID" && len(args) == 1:
		c.out.integer(c.id)
	default:
		c.out.fail("ERR unknown subcommand or wrong number of arguments for 'client'. Want SETNAME, SETINFO, GETNAME or ID.")
	}
}

func selectDB(c *conn, _ context.Context, args [][]byte) {
	if string(args[0]) != "0" {
		c.out.fail("ERR DB index is out of range: there is 0 only; key spaces are namespaces, and AUTH opens them")
		return
	}
	c.out.simple("OK")
}

// config answers what tools ask before they begin.
func config(c *conn, _ context.Context, args [][]byte) {
	if !strings.EqualFold(string(args[0]), "GET") {
		c.out.fail("ERR CONFIG knows GET only: settings are flags of the server")
		return
	}
	known := map[string]string{"save": "", "appendonly": "no"}
	var pairs []string
	for _, name := range args[1:] {
		if v, ok := known[strings.ToLower(string(name))]; ok {
			pairs = append(pairs, strings.ToLower(string(name)), v)
		}
	}
	c.out.dictionary(len(pairs) / 2)
	for _, s := range pairs {
		c.out.bulk(s)
	}
}

func set(c *conn, ctx context.Context, args [][]byte) {
	on, bad := setOptions(args[2:])
	if bad != "" {
		c.out.fail(bad)
		return
	}
	c.s.traffic.in.Add(int64(len(args[1])))
	v := content{bytes: args[1]}
	if p := c.in.placed; p != nil {
		v.lies = p.key
	}
	switch stored, err := c.s.cache.set(ctx, c.sp, string(args[0]), v, on); {
	case err != nil:
		c.out.fail(err.Error())
	case !stored:
		c.out.null()
	default:
		c.out.simple("OK")
	}
}

// setOptions reads what follows the value of a SET.
func setOptions(args [][]byte) (on conditions, bad string) {
	for len(args) > 0 {
		word := strings.ToUpper(string(args[0]))
		args = args[1:]
		switch word {
		case "NX":
			on.absent = true
		case "XX":
			on.present = true
		case "EX", "PX":
			if len(args) == 0 || on.ttl > 0 {
				return on, syntaxError
			}
			unit := time.Second
			if word == "PX" {
				unit = time.Millisecond
			}
			n, err := strconv.ParseInt(string(args[0]), 10, 64)
			if err != nil {
				return on, "ERR value is not an integer or out of range"
			}
			if n <= 0 || n > math.MaxInt64/2/int64(unit) {
				return on, "ERR invalid expire time in 'set' command"
			}
			on.ttl = time.Duration(n) * unit
			args = args[1:]
		default:
			return on, syntaxError
		}
	}
	if on.absent && on.present {
		return on, syntaxError
	}
	return on, ""
}

func get(c *conn, ctx context.Context, args [][]byte) { c.send(ctx, string(args[0])) }

// mget sends one value after the other, so that no more than one is held.
func mget(c *conn, ctx context.Context, args [][]byte) {
	c.out.array(len(args))
	for _, key := range args {
		if c.out.gone {
			return // nobody is there to read the others for
		}
		c.writing()
		c.send(ctx, string(key))
	}
}

// send answers with what lies under key.
func (c *conn) send(ctx context.Context, key string) {
	v := c.s.cache.get(ctx, c.sp, key)
	if v == nil {
		c.out.null()
		return
	}
	defer v.Release()
	c.s.traffic.out.Add(int64(len(v.Bytes)))
	c.out.value(v.Bytes)
}

func exists(c *conn, ctx context.Context, args [][]byte) {
	n := int64(0)
	for _, key := range args {
		if _, ok := c.s.cache.size(ctx, c.sp, string(key)); ok {
			n++
		}
	}
	c.s.traffic.looked.Add(int64(len(args)))
	c.s.traffic.found.Add(n)
	c.out.integer(n)
}

func strlen(c *conn, ctx context.Context, args [][]byte) {
	n, _ := c.s.cache.size(ctx, c.sp, string(args[0]))
	c.out.integer(n)
}

func typeOf(c *conn, ctx context.Context, args [][]byte) {
	if _, ok := c.s.cache.size(ctx, c.sp, string(args[0])); ok {
		c.out.simple("string")
		return
	}
	c.out.simple("none")
}

func del(c *conn, _ context.Context, args [][]byte) {
	c.out.integer(int64(c.s.cache.del(c.sp, texts(args))))
}

func texts(args [][]byte) []string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = string(a)
	}
	return out
}

// scan walks the numbers of the units: one that is there all the while is told
// of, be it once or, if it was stored anew, perhaps twice.
func scan(c *conn, _ context.Context, args [][]byte) {
	at, err := strconv.ParseUint(string(args[0]), 10, 63)
	if err != nil {
		c.out.fail("ERR invalid cursor")
		return
	}
	pattern, count, typed := "*", 10, true
	for args = args[1:]; len(args) > 0; args = args[2:] {
		if len(args) == 1 {
			c.out.fail(syntaxError)
			return
		}
		switch value := string(args[1]); strings.ToUpper(string(args[0])) {
		case "MATCH":
			if pattern = value; len(pattern) > maxPattern {
				c.out.fail(patternError)
				return
			}
		case "COUNT":
			if count, err = strconv.Atoi(value); err != nil || count < 1 {
				c.out.fail(syntaxError)
				return
			}
		case "TYPE":
			typed = strings.EqualFold(value, "string")
		default:
			c.out.fail(syntaxError)
			return
		}
	}
	found, next := c.s.cache.scan(c.sp, at, min(count, scanMost))
	found = matching(found, pattern, typed)
	c.out.array(2)
	c.out.bulk(strconv.FormatUint(next, 10))
	c.out.array(len(found))
	for _, key := range found {
		c.out.bulk(key)
	}
}

// scanMost is how many units are looked at under one lock.
const scanMost = 10000

// maxPattern bounds patterns: matching takes the product of both lengths.
const (
	maxPattern   = 1 << 10
	patternError = "ERR the pattern is too long: at most 1024 bytes"
)

func keys(c *conn, _ context.Context, args [][]byte) {
	if len(args[0]) > maxPattern {
		c.out.fail(patternError)
		return
	}
	var found []string
	for at := uint64(0); ; {
		some, next := c.s.cache.scan(c.sp, at, scanMost)
		found = append(found, matching(some, string(args[0]), true)...)
		if at = next; at == 0 {
			break
		}
	}
	c.out.array(len(found))
	for _, key := range found {
		c.out.bulk(key)
	}
}

func matching(keys []string, pattern string, typed bool) (out []string) {
	for _, key := range keys {
		if typed && glob(pattern, key) {
			out = append(out, key)
		}
	}
	return out
}

func dbsize(c *conn, _ context.Context, _ [][]byte) {
	c.out.integer(int64(c.tenant().Stats().Keys))
}

// redisVersion is that of the commands, for clients that ask.
const redisVersion = "7.0.0"

func info(c *conn, _ context.Context, _ [][]byte) {
	all, own := c.s.Stats(), c.tenant().Stats()
	var b strings.Builder
	fmt.Fprintf(&b, "# Server\r\nredis_version:%s\r\nredis_mode:standalone\r\nserver_name:dynago kvstore\r\nprocess_id:%d\r\nuptime_in_seconds:%d\r\n",
		redisVersion, os.Getpid(), int64(all.Uptime/time.Second))
	fmt.Fprintf(&b, "\r\n# Clients\r\nconnected_clients:%d\r\nmaxclients:%d\r\n", all.Clients, all.MaxClients)
	fmt.Fprintf(&b, "\r\n# Memory\r\nused_memory:%d\r\nmaxmemory:%d\r\nmaxmemory_policy:retention\r\nreceiving_memory:%d\r\n", own.Used, own.Capacity, all.Receiving)
	fmt.Fprintf(&b, "\r\n# Stats\r\ntotal_connections_received:%d\r\nrejected_connections:%d\r\nkeyspace_hits:%d\r\nkeyspace_misses:%d\r\nevicted_keys:%d\r\nexpired_keys:%d\r\n",
		all.Accepted, all.Refused, all.Hits, all.Misses, all.Evicted, all.Expired)
	b.WriteString("\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n# Cluster\r\ncluster_enabled:0\r\n\r\n# Keyspace\r\n")
	if own.Keys > 0 {
		fmt.Fprintf(&b, "db0:keys=%d,expires=%d,avg_ttl=0\r\n", own.Keys, own.Expiring)
	}
	c.out.bulk(b.String())
}
