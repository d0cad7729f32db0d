package system

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// keys are all keys in Redis.
func (r *Redis) keys() ([]string, error) { return r.list("KEYS", "*") }

// list is the answer to a command that returns a list of texts.
func (r *Redis) list(command ...string) ([]string, error) {
	conn, err := r.w.Net.Dialer("observer")(context.Background(), "tcp", redisAddress)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var text strings.Builder
	fmt.Fprintf(&text, "*%d\r\n", len(command))
	for _, word := range command {
		fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(conn, text.String()); err != nil {
		return nil, err
	}
	in := bufio.NewReader(conn)
	n, err := length(in, '*')
	texts := make([]string, n)
	for i := range texts {
		size := 0
		if size, err = length(in, '$'); err != nil {
			break
		}
		b := make([]byte, size+2)
		if _, err = io.ReadFull(in, b); err != nil {
			break
		}
		texts[i] = string(b[:size])
	}
	return texts, err
}

// length reads a line of the protocol that says how much follows.
func length(in *bufio.Reader, kind byte) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("redis: %.100s", line)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// keeps are the keys that stay when nothing is left to do, by their beginnings: history and
// its files, what hubs have learned, who lives.
var keeps = []string{
	"clock", "files:duty:", "files:folder:", "files:folders:", "files:hold:", "files:known:", "files:marks", "files:numbers:", "files:outputs:", "files:refs",
	"files:shares", "files:total", "files:trash", "files:dropped", "files:used:", "files:blocks:", "files:bond", "files:epoch", "fleet:", "g:join:", "g:pins", "hints:dismissed", "h:faults", "h:trends", "nonce:", "overflow:money", "q:counters", "q:durations", "q:entries:",
	"q:entry:", "q:forgotten:", "q:history", "q:hubs", "q:ids:", "q:job:", "q:numbers", "q:raised", "q:results:", "q:shares:", "q:tags", "q:undelivered:", "s:hub:", "scale:", "usage:",
}

// remains are the keys that nothing needs any more: leases, doors, waiting jobs, owners of
// clients that are gone, parcels between hubs.
func (w *World) remains() ([]string, error) {
	all, err := w.Redis.keys()
	var left []string
	for _, key := range all {
		key = key[strings.Index(key, ":")+1:]
		if !slices.ContainsFunc(keeps, func(beginning string) bool { return strings.HasPrefix(key, beginning) }) {
			left = append(left, key)
		}
	}
	return left, err
}

// buried says of each job with a tombstone what is known of it, for a breach.
func (r *Redis) buried() (all []string) {
	keys, _ := r.keys()
	for _, key := range keys {
		before, is := strings.CutSuffix(key, "q:tombs")
		if !is {
			continue
		}
		tombs, _ := r.list("ZRANGE", key, "0", "-1", "WITHSCORES")
		for n := 0; n+1 < len(tombs); n += 2 {
			record, _ := r.list("HGETALL", before+"q:job:"+tombs[n])
			all = append(all, fmt.Sprintf("%s until %s: %q", tombs[n], tombs[n+1], record))
		}
	}
	return all
}
