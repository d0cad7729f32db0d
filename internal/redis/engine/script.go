package engine

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// Undeclared is the first line of a script that uses keys that are not in KEYS: Dragonfly wants
// to know, and so does this server. Others take it for a comment.
const Undeclared = "--!df flags=allow-undeclared-keys\n"

// Script is a compiled Lua script.
type Script struct {
	proto *lua.FunctionProto
	// declares says that it may use the keys in KEYS only.
	declares bool
}

// Compile reads a script. Name is for errors. Scripts find KEYS, ARGV and
// redis.call as on a server, and redis.write, which is redis.call for what
// changes something: without it a change would not be in the journal, so
// redis.call refuses. A script that uses any other global is an error here, so that a
// function which is missing is found before a run comes to it. redis.key, redis.pack and redis.int are what the prelude of
// package redis calls key, pack and int.
func Compile(name, text string) (*Script, error) {
	chunk, err := parse.Parse(strings.NewReader(text), name)
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", name, err)
	}
	proto, err := lua.Compile(chunk, name)
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", name, err)
	}
	for _, global := range globals(proto) {
		if !slices.Contains(known, global) {
			return nil, fmt.Errorf("script %s: nothing defines %s", name, global)
		}
	}
	return &Script{proto: proto, declares: !strings.HasPrefix(text, Undeclared)}, nil
}

// known are the globals that scripts find, see newInterpreter.
var known = []string{
	"KEYS", "ARGV", "redis", "table", "string", "math", "assert", "error", "ipairs", "next", "pairs", "pcall", "rawget",
	"rawset", "select", "tonumber", "tostring", "type", "unpack",
}

// globals returns the globals that a function and those within it use, some more than once.
func globals(f *lua.FunctionProto) (names []string) {
	for _, code := range f.Code {
		if op := int(code >> 26); op == lua.OP_GETGLOBAL || op == lua.OP_SETGLOBAL {
			names = append(names, f.Constants[code&0x3ffff].String())
		}
	}
	for _, inner := range f.FunctionPrototypes {
		names = append(names, globals(inner)...)
	}
	return names
}

// interpreter runs scripts, one at a time.
type interpreter struct {
	state *lua.LState
	// do does a command for the script that runs.
	do func(args []string, write bool) (any, error)
	// prefix is the first key of the script that runs.
	prefix string
	// keys are all that the script may use, if it declares them.
	keys     []string
	declares bool
}

// maxStack bounds the values on Lua's stack: unpack of a long list takes room.
const maxStack = 1 << 20

func newInterpreter(do func(args []string, write bool) (any, error)) *interpreter {
	l := lua.NewState(lua.Options{SkipOpenLibs: true, RegistrySize: 1 << 12, RegistryMaxSize: maxStack, MinimizeStackMemory: true})
	for _, library := range []struct {
		name string
		open lua.LGFunction
	}{
		{lua.BaseLibName, lua.OpenBase},
		{lua.TabLibName, lua.OpenTable},
		{lua.StringLibName, lua.OpenString},
		{lua.MathLibName, lua.OpenMath},
	} {
		l.Push(l.NewFunction(library.open))
		l.Push(lua.LString(library.name))
		l.Call(1, 0)
	}
	for _, name := range []string{"dofile", "loadfile", "load", "loadstring", "module", "require", "print", "collectgarbage"} {
		l.SetGlobal(name, lua.LNil)
	}
	i := &interpreter{state: l, do: do}
	redis := l.NewTable()
	redis.RawSetString("call", l.NewFunction(i.calls(false)))
	redis.RawSetString("pcall", l.NewFunction(i.pcall))
	redis.RawSetString("write", l.NewFunction(i.calls(true)))
	for name, function := range i.texts() {
		redis.RawSetString(name, l.NewFunction(function))
	}
	l.SetGlobal("redis", redis)
	return i
}

// run runs a script and gives its reply, a flat list of strings.
func (i *interpreter) run(s *Script, keys, args []string) ([]string, error) {
	l := i.state
	defer l.SetTop(0)
	i.prefix = ""
	if len(keys) > 0 {
		i.prefix = keys[0]
	}
	i.keys, i.declares = keys, s.declares
	l.SetGlobal("KEYS", tableOf(l, keys))
	l.SetGlobal("ARGV", tableOf(l, args))
	l.Push(l.NewFunctionFromProto(s.proto))
	if err := l.PCall(0, 1, nil); err != nil {
		if e, isLua := err.(*lua.ApiError); isLua { //nolint:errorlint // it is what PCall gives
			return nil, fmt.Errorf("ERR %s", e.Object.String()) // without Lua's stack
		}
		return nil, err
	}
	return flat(l.Get(-1))
}

func tableOf(l *lua.LState, values []string) *lua.LTable {
	t := l.CreateTable(len(values), 0)
	for _, value := range values {
		t.Append(lua.LString(value))
	}
	return t
}

// flat turns what a script gave back into strings.
func flat(v lua.LValue) ([]string, error) {
	t, isTable := v.(*lua.LTable)
	if !isTable {
		return nil, fmt.Errorf("ERR the script's reply is a %s, not a list", v.Type())
	}
	out := make([]string, 0, t.Len())
	for n := 1; n <= t.Len(); n++ {
		switch item := t.RawGetInt(n).(type) {
		case lua.LString:
			out = append(out, string(item))
		case lua.LNumber:
			out = append(out, strconv.FormatInt(int64(item), 10)) // as Redis: the fraction goes
		default:
			return nil, fmt.Errorf("ERR item %d of the script's reply is a %s", n, item.Type())
		}
	}
	return out, nil
}

// calls is redis.call or redis.write.
func (i *interpreter) calls(write bool) lua.LGFunction {
	return func(l *lua.LState) int {
		args := make([]string, l.GetTop())
		for n := range args {
			switch arg := l.Get(n + 1).(type) {
			case lua.LString:
				args[n] = string(arg)
			case lua.LNumber:
				args[n] = numberText(float64(arg))
			default:
				l.RaiseError("ERR Lua redis lib command arguments must be strings or integers")
			}
		}
		if len(args) == 0 {
			l.RaiseError("ERR Please specify at least one argument for this redis.call() call")
		}
		if i.declares {
			for _, key := range keysOf(args) {
				if !slices.Contains(i.keys, key) {
					l.RaiseError("ERR script tried accessing undeclared key, key: %s", key)
				}
			}
		}
		reply, err := i.do(args, write)
		var value lua.LValue
		if err == nil {
			value, err = fromReply(l, reply)
		}
		if err != nil {
			l.RaiseError("%s", err.Error())
		}
		l.Push(value)
		return 1
	}
}

// numberText is how Redis writes a number of Lua's that is an argument.
func numberText(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'g', 17, 64)
}

// fromReply turns a reply into what a script gets.
func fromReply(l *lua.LState, reply any) (lua.LValue, error) {
	switch r := reply.(type) {
	case nil:
		return lua.LFalse, nil
	case int64:
		return lua.LNumber(r), nil
	case string:
		return lua.LString(r), nil
	case datum:
		text, err := r.read()
		return lua.LString(text), err
	case status:
		t := l.CreateTable(0, 1)
		t.RawSetString("ok", lua.LString(r))
		return t, nil
	case []any:
		t := l.CreateTable(len(r), 0)
		for n, item := range r {
			value, err := fromReply(l, item)
			if err != nil {
				return nil, err
			}
			t.RawSetInt(n+1, value)
		}
		return t, nil
	}
	return nil, fmt.Errorf("ERR a reply of type %T", reply)
}
