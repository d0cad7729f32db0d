package engine

import (
	"crypto/sha1" // #nosec G505 -- Redis identifies scripts by it; not for security
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

var (
	errNoScript = errors.New("NOSCRIPT No matching script")
	errNumKeys  = errors.New("ERR value is not an integer or out of range")
)

// evaluator runs scripts that come over connections, as a server does: they may change
// anything by redis.call, and are known by their hash until the server ends.
type evaluator struct {
	// runID names this start of the server, in INFO.
	runID   string
	scripts map[string]*Script
	full    bool // there is no memory left
	changed bool // the script that runs has changed something
}

// errOOM is what Redis says, but for a full stop.
var errOOM = errors.New("OOM command not allowed when used memory > 'maxmemory'")

// shrinking are the commands that a full server does.
var shrinking = map[string]bool{
	"DEL": true, "HDEL": true, "SREM": true, "ZREM": true, "LTRIM": true, "ZREMRANGEBYRANK": true, "ZREMRANGEBYSCORE": true, "PEXPIREAT": true, "FLUSHALL": true,
}

// takes refuses a command that changes something while the server is full. As in Redis, a
// script that has begun to change things may go on.
func (v *evaluator) takes(command string) error {
	if v.full && !v.changed && !shrinking[strings.ToUpper(command)] {
		return errOOM
	}
	v.changed = true
	return nil
}

// SetFull makes a Server refuse to take more, as a Redis at its maxmemory does, or ends that.
func (e *Engine) SetFull(full bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.server.full = full
}

// Serve answers a connection until it ends. An engine that was not opened as a Server
// refuses scripts there.
func (e *Engine) Serve(conn net.Conn) { newConnection(e, conn).serve() }

// evaluate does the commands that only a server has; ok is false for all others.
func (e *Engine) evaluate(args []string) (reply any, ok bool, err error) {
	if e.server == nil {
		return nil, false, nil
	}
	switch strings.ToUpper(args[0]) {
	case "EVAL":
		reply, err = e.eval(args, e.server.learn)
	case "EVALSHA":
		reply, err = e.eval(args, e.server.recall)
	case "INFO":
		reply = e.server.info()
	case "CONFIG":
		reply = []any{}
	default:
		return nil, false, nil
	}
	return reply, true, err
}

// eval runs a script: EVAL script numkeys key... arg...
func (e *Engine) eval(args []string, find func(string) (*Script, error)) (any, error) {
	if len(args) < 3 {
		return nil, fmt.Errorf("ERR wrong number of arguments for '%s' command", strings.ToLower(args[0]))
	}
	count, err := strconv.Atoi(args[2])
	if err != nil || count < 0 || count > len(args)-3 {
		return nil, errNumKeys
	}
	e.mu.Lock()
	s, err := find(args[1])
	e.mu.Unlock()
	if err != nil {
		return nil, err
	}
	texts, err := e.Run(s, args[3:3+count], args[3+count:])
	if err != nil {
		return nil, err
	}
	list := make([]any, len(texts))
	for n, text := range texts {
		list[n] = text
	}
	return list, nil
}

// learn compiles a script, or finds it. The caller holds the engine's lock.
func (v *evaluator) learn(text string) (*Script, error) {
	sum := sha1.Sum([]byte(text)) // #nosec G401 -- see above
	name := hex.EncodeToString(sum[:])
	if s := v.scripts[name]; s != nil {
		return s, nil
	}
	s, err := Compile(name, text)
	if err == nil {
		v.scripts[name] = s
	}
	return s, err
}

// recall finds a script by its hash. The caller holds the engine's lock.
func (v *evaluator) recall(sha string) (*Script, error) {
	if s := v.scripts[strings.ToLower(sha)]; s != nil {
		return s, nil
	}
	return nil, errNoScript
}

func (v *evaluator) info() string {
	return "# Server\r\nredis_version:7.4.0\r\nrun_id:" + v.runID + "\r\n# Replication\r\nrole:master\r\nmaster_replid:" + v.runID +
		"\r\n# Persistence\r\naof_enabled:1\r\n"
}

// pcall is redis.pcall: an error is a table with its text.
func (i *interpreter) pcall(l *lua.LState) int {
	call := l.NewFunction(i.calls(false))
	top := l.GetTop()
	l.Insert(call, 1)
	if err := l.PCall(top, 1, nil); err != nil {
		t := l.NewTable()
		t.RawSetString("err", lua.LString(err.Error()))
		l.SetTop(0)
		l.Push(t)
	}
	return 1
}
