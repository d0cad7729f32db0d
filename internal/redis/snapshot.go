package redis

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// dumpBatch is how many elements one command of a dump carries.
const dumpBatch = 128

// snapshot is the complete data at one moment.
type snapshot struct {
	dump []byte // commands that recreate it
	held []byte // what was pending then, which the dump contains
	upTo int64  // what was committed then
}

// rewrite replaces the file with one that holds the current data. The caller holds
// files: whoever waits for a sync waits for the rewrite, which serves the same
// purpose. Scripts continue meanwhile, except during the cut.
func (j *journal) rewrite() error {
	j.server.expire()
	if err := j.server.do("EVAL", "return redis.call('COMFYHUB.CUT')", "0"); err != nil {
		return fmt.Errorf("dump: %w", err)
	}
	j.mu.Lock()
	snap := j.last
	j.last = snapshot{}
	j.mu.Unlock()

	f, err := writeNew(j.path, snap.dump)
	if f == nil {
		j.putBack(snap.held)
		return err
	}
	j.file.Close()
	j.file, j.size, j.base = f, int64(len(snap.dump)), int64(len(snap.dump))
	if err != nil {
		// After a crash, the old file may be back under the name.
		j.unsure = true
		return err
	}
	j.synced, j.unsure = snap.upTo, false
	return nil
}

// cut takes a snapshot. It runs under the server's lock.
func (j *journal) cut(do func(args ...string) (any, error)) error {
	dump, err := dumpAll(do)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last = snapshot{dump: dump, held: j.pending, upTo: j.committed}
	j.pending = nil
	return nil
}

// writeNew replaces a file with one of the given content. If the process dies,
// either the old or the new one is there, complete. A file that is returned
// together with an error has its name, but perhaps not durably.
func writeNew(path string, data []byte) (*os.File, error) {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		f.Close()
		return nil, errors.Join(err, os.Remove(path+".new"))
	}
	return f, syncFolder(filepath.Dir(path))
}

// dumpAll returns commands that recreate all keys.
func dumpAll(do func(args ...string) (any, error)) ([]byte, error) {
	keys, err := texts(do("KEYS", "*"))
	if err != nil {
		return nil, err
	}
	var out []byte
	for _, key := range keys {
		if out, err = dumpKey(out, key, do); err != nil {
			return nil, fmt.Errorf("key %q: %w", key, err)
		}
	}
	return out, nil
}

func dumpKey(out []byte, key string, do func(args ...string) (any, error)) ([]byte, error) {
	kind, err := texts(do("TYPE", key))
	if err != nil {
		return nil, err
	}
	var read, write []string
	step := dumpBatch
	switch kind[0] {
	case "none":
		return out, nil // it expired when it was accessed
	case "string":
		read, write = []string{"GET", key}, []string{"SET", key}
	case "hash":
		read, write = []string{"HGETALL", key}, []string{"HSET", key}
		step *= 2
	case "list":
		read, write = []string{"LRANGE", key, "0", "-1"}, []string{"RPUSH", key}
	case "set":
		read, write = []string{"SMEMBERS", key}, []string{"SADD", key}
	case "zset":
		read, write = []string{"ZRANGE", key, "0", "-1", "WITHSCORES"}, []string{"ZADD", key}
		step *= 2
	default:
		return nil, fmt.Errorf("a %s cannot be kept", kind[0])
	}
	values, err := texts(do(read...))
	if err != nil {
		return nil, err
	}
	if kind[0] == "zset" { // ZADD wants the score first
		for i := 0; i+1 < len(values); i += 2 {
			values[i], values[i+1] = values[i+1], values[i]
		}
	}
	for len(values) > 0 {
		n := min(step, len(values))
		out = appendCommand(out, append(write[:2:2], values[:n]...)...)
		values = values[n:]
	}
	left, err := do("PTTL", key)
	if err != nil {
		return nil, err
	}
	if ms, ok := left.(int); ok && ms > 0 {
		at := time.Now().UnixMilli() + int64(ms)
		out = appendCommand(out, "PEXPIREAT", key, strconv.FormatInt(at, 10))
	}
	return out, nil
}

// texts converts a reply into strings.
func texts(reply any, err error) ([]string, error) {
	if err != nil {
		return nil, err
	}
	switch r := reply.(type) {
	case nil:
		return nil, nil
	case []any:
		out := make([]string, 0, len(r))
		for _, item := range r {
			inner, err := texts(item, nil)
			if err != nil {
				return nil, err
			}
			out = append(out, inner...)
		}
		return out, nil
	default:
		text := fmt.Sprint(r)
		if b, ok := r.([]byte); ok {
			text = string(b)
		}
		return []string{strings.Clone(text)}, nil
	}
}
